"""The pages of the methods: a text by hand in docs/methods, the rest from the code and from committed results."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from markup import cell, code, rows_of, text_of

from fedtailor.methods import catalogue
from fedtailor.views.cards import card_lines, method_facts

DOCS = Path(__file__).parent.parent
FOOTNOTE = re.compile(r"\s*[¹²³⁴⁵⁶⁷⁸⁹⁰ ]+$")
USE = "## When to use it"
COLUMNS = 4  # of a table of results, from the left: the headline first
SETTINGS = ("setting", "allowed", "default", "about")
TABLES = """The rows of {name} in the committed tables; each links to its whole table, with the other methods, the seeds and what is
decided. How to read them: [what is measured](../measured.md), [the comparison](../comparison.md).
"""
NOTHING = "No committed table has a row of this method yet."


def overview() -> str:
    """All methods in a table that leads to their pages."""
    facts = [method_facts(kind) for kind in catalogue().values()]
    rows = [
        (f"[{fact['name']}]({fact['name']}.md)", str(fact["year"] or "–"), cell(_first(fact["about"])), cell(fact["client_state"]))
        for fact in facts
    ]
    about = "Every method has the idea, its algorithm, its settings, what to expect of it, and its results on a page."
    return "\n".join(["# Every method", "", about, "", *rows_of(("method", "year", "what it does", "a client keeps"), rows), ""])


def method_page(name: str, text: str) -> str:
    """The page of a method: its text by hand, with the algorithm, settings and card before, and results after it."""
    link = f"[Algorithm, settings and card](../methods.md#{name})\n"
    if link not in text or USE not in text or "## When not" not in text:
        raise ValueError(f"docs/methods/{name}.md needs the line {link!r}, '{USE}' and '## When not'")
    return text.replace(link, "\n".join(_generated(name))) + "\n" + "\n".join(_results(name))


def names() -> list[str]:
    """The methods, each of which needs a page."""
    missing = [name for name in catalogue() if not (DOCS / "methods" / f"{name}.md").exists()]
    if missing:
        raise ValueError(f"write docs/methods/NAME.md (see docs/methods/fedper.md) for: {', '.join(missing)}")
    return list(catalogue())


def _generated(name: str) -> Iterator[str]:
    facts = method_facts(catalogue()[name])
    about = facts["about"].partition("\n\n")
    yield from ("## Algorithm", "", text_of(about[0]), "")
    yield from ("```text", about[2], "```", "") if about[2] else ()
    yield from ("## Settings", "", *_settings(facts), "")
    yield from ("## Card", "", *_card(facts), "")


def _settings(facts: dict[str, Any]) -> Iterator[str]:
    name = facts["name"]
    if not facts["settings"]:
        yield f'`method.name = "{name}"`; it has no settings of its own.'
        return
    yield from ("```toml", "[method]", f'name = "{name}"', "```", "")
    rows = [
        (code(key), cell(one["allowed"]), "–" if one["default"] is None else code(one["default"]), cell(text_of(one["about"])))
        for key, one in facts["settings"].items()
    ]
    yield from rows_of(SETTINGS, rows)
    yield from (f"\n!!! note\n    {sentence[0].upper()}{sentence[1:]}." for sentence in facts["inert"])


def _card(facts: dict[str, Any]) -> Iterator[str]:
    lines = [line.partition(": ") for line in card_lines(facts)]
    facts_of = [(key, about) for key, colon, about in lines if colon and key not in ("limit", "deviation")]
    yield from rows_of(("", ""), [(key, cell(about)) for key, about in facts_of])
    yield ""
    yield from (f"* {key}." for key, colon, _ in lines if not colon)
    for title, kind in (("It becomes another method, or needs care", "limit"), ("It deviates from the paper", "deviation")):
        found = [about for key, _, about in lines if key == kind]
        if found:
            yield from ("", f"**{title}:**", "", *(f"* {text_of(about)}" for about in found))


def _results(name: str) -> Iterator[str]:
    yield from ("## Results", "")
    found = [one for page in sorted((DOCS / "results").glob("*.md")) for one in _rows(page, name)]
    if not found:
        yield NOTHING
        return
    yield TABLES.format(name=code(name))
    for title, place, header, rows, notes in found:
        yield from (f"**[{title}](../results/{place})**", "", *rows_of(header, rows), "", *(f"{note}\n" for note in notes))


def _rows(page: Path, name: str) -> Iterator[tuple[str, str, list[str], list[list[str]], list[str]]]:
    """The rows of a method in the tables of a page that a command wrote, with their footnotes."""
    lines = page.read_text(encoding="utf-8").splitlines()
    heading = page.stem
    for number, line in enumerate(lines):
        if line.startswith("## "):
            heading = line.removeprefix("## ")
        if not line.startswith("|") or number + 1 == len(lines) or not re.match(r"\|[ :-]+\|", lines[number + 1]):
            continue
        header = _cells(line)
        body = []
        for row in lines[number + 2 :]:
            if not row.startswith("|"):
                break
            body.append(_cells(row))
        own = [row for row in body if re.split(r"[, ]", FOOTNOTE.sub("", row[0]))[0].lower() == name]
        if own and re.search("%|accuracy|final|received", header[1]):
            marks = {mark for row in own for mark in re.findall("[¹²³⁴⁵⁶⁷⁸⁹⁰]+", row[0])}
            end = next((n for n in range(number, len(lines)) if lines[n].startswith("## ")), len(lines))
            notes = [note for note in lines[number:end] if note.split(" ")[0] in marks]
            title = ["method" if not header[0] else header[0], *header[1:COLUMNS]]
            yield heading, page.name, title, [row[:COLUMNS] for row in own], notes


def _cells(line: str) -> list[str]:
    return [part.strip() for part in re.split(r"(?<!\\)\|", line)[1:-1]]


def _first(text: str) -> str:
    return text.partition("\n\n")[0]
