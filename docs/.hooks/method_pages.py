"""The pages of the methods: a text by hand in docs/methods, the rest from the code and from committed results."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from markup import cell, code, rows_of, text_of

from fedtailor.methods import catalogue
from fedtailor.runs.toml import value_text
from fedtailor.views.cards import card_lines, method_facts

DOCS = Path(__file__).parent.parent
USE, AVOID = "## When to use it", "## When not"
SETTINGS = ("setting", "allowed", "default", "about")
HEADINGS = {"limit": "It becomes another method, or needs care", "deviation": "It deviates from the paper"}
COLUMNS = 4  # of a table of results, from the left: the headline first
MARK = "[¹²³⁴⁵⁶⁷⁸⁹⁰]+"  # of a footnote
TABLES = """The rows of {name} in the committed tables; each links to its whole table, with the other methods, the seeds
and what is decided. How to read them: [what is measured](../measured.md), [the comparison](../comparison.md).
"""
COMPARISONS = ("methods-", "natural-")  # pages whose rows are shown; further ones are linked
NOTHING = "No committed table has a row under this name."


def overview() -> str:
    """All methods in a table that leads to their pages."""
    rows = []
    for name, kind in catalogue().items():
        facts = method_facts(kind)
        what, keeps = cell(text_of(facts["about"].partition("\n\n")[0])), cell(facts["client_state"])
        rows.append((f"[{name}]({name}.md)", str(facts["year"] or "–"), what, keeps))
    about = "Every method has the idea, its algorithm, its settings, what to expect of it, and its results on a page."
    table = rows_of(("method", "year", "what it does", "a client keeps"), rows)
    return "\n".join(["# Every method", "", about, "", *table, ""])


def names() -> list[str]:
    """The methods, each of which needs a page."""
    missing = [name for name in catalogue() if not (DOCS / "methods" / f"{name}.md").exists()]
    if missing:
        raise ValueError(f"write docs/methods/NAME.md (see docs/methods/fedper.md) for: {', '.join(missing)}")
    return list(catalogue())


def method_page(name: str, text: str) -> str:
    """The page of a method: its text by hand, with the algorithm, settings and card before, and results after it."""
    link = f"[Algorithm, settings and card](../methods.md#{name})\n"
    if link not in text or USE not in text or AVOID not in text:
        raise ValueError(f"docs/methods/{name}.md needs the line {link!r}, '{USE}' and '{AVOID}'")
    return text.replace(link, "\n".join(_generated(name))) + "\n" + "\n".join(_results(name))


def _generated(name: str) -> Iterator[str]:
    facts = method_facts(catalogue()[name])
    first, _, rest = facts["about"].partition("\n\n")
    yield from ("## Algorithm", "", text_of(first), "")
    yield from ("```text", *_reflowed(rest), "```", "") if rest else ()
    yield from ("## Settings", "", *_settings(facts), "")
    yield from ("## Card", "", *_card(facts), "")


def _reflowed(text: str) -> list[str]:
    """The lines of a docstring, one for each part such as ``Client:``; the page wraps them."""
    lines: list[str] = []
    for line in text.replace("``", "").splitlines():
        if not lines or re.match(r"[A-Z][\w ,.()]{1,40}: ", line):
            lines.append(line)
        else:
            lines[-1] += f" {line}"
    return lines


def _settings(facts: dict[str, Any]) -> Iterator[str]:
    if not facts["settings"]:
        yield f'`method.name = "{facts["name"]}"`; it has no settings of its own.'
        return
    yield from ("```toml", "[method]", f'name = "{facts["name"]}"', "```", "")
    rows = []
    for key, one in facts["settings"].items():
        default = "–" if one["default"] is None else code(value_text(one["default"]))
        rows.append((code(key), cell(one["allowed"]), default, cell(text_of(one["about"]))))
    yield from rows_of(SETTINGS, rows)
    yield from (f"\n!!! note\n    {sentence[0].upper()}{sentence[1:]}." for sentence in facts["inert"])


def _card(facts: dict[str, Any]) -> Iterator[str]:
    lines = [line.partition(": ") for line in card_lines(facts)]
    rows = [(key, cell(about)) for key, colon, about in lines if colon and key not in HEADINGS]
    yield from (*rows_of(("what", "here"), rows), "")
    yield from (f"* {line}." for line, colon, _ in lines if not colon)
    for kind, title in HEADINGS.items():
        found = [about for key, _, about in lines if key == kind]
        if found:
            yield from ("", f"**{title}:**", "", *(f"* {text_of(about)}" for about in found))


class Found(NamedTuple):
    """A method's rows in one table of a page that a command wrote."""

    title: str
    page: str
    header: list[str]
    rows: list[list[str]]
    notes: list[str]


def _results(name: str) -> Iterator[str]:
    yield from ("## Results", "")
    places = [page for page in sorted((DOCS / "results").glob("*.md")) if page.stem != "house"]  # house: lines of code
    pages = {page: list(results_of(page, name)) for page in places}
    shown = [one for page, found in pages.items() if page.name.startswith(COMPARISONS) for one in found]
    further = [page.stem for page, found in pages.items() if found and not page.name.startswith(COMPARISONS)]
    yield TABLES.format(name=code(name)) if shown else ""
    for one in shown:
        yield from (f"**[{one.title}](../results/{one.page})**", "", *rows_of(one.header, one.rows), "")
        yield from (f"{note}\n" for note in one.notes)
    if further:
        links = ", ".join(f"[{stem}](../results/{stem}.md)" for stem in further)
        yield f"{'Further tables' if shown else 'Tables'} with rows of {code(name)}: {links}."
    yield "" if shown or further else NOTHING


def results_of(page: Path, name: str) -> Iterator[Found]:
    """The rows of a method in the tables of a page, with the footnotes that they have."""
    lines = page.read_text(encoding="utf-8").splitlines()
    title = page.stem
    for number, line in enumerate(lines[:-1]):
        title = line.removeprefix("## ") if line.startswith("## ") else title
        if not line.startswith("|") or not re.fullmatch(r"[|: -]+", lines[number + 1]):
            continue
        header, *body = [_cells(row) for row in _table(lines[number:]) if not re.fullmatch(r"[|: -]+", row)]
        rows = [row for row in body if re.split(r"[ ,]", row[0])[0].lower() == name]
        if rows:
            marks = {mark for row in rows for mark in re.findall(MARK, row[0])}
            rest = lines[number:]
            end = next((place for place, text in enumerate(rest) if text.startswith("## ")), len(rest))
            notes = [text for text in rest[:end] if text.partition(" ")[0] in marks]
            yield Found(
                title, page.name, [header[0] or "method", *header[1:COLUMNS]], [r[:COLUMNS] for r in rows], notes
            )


def _table(lines: list[str]) -> Iterator[str]:
    for line in lines:
        if not line.startswith("|"):
            return
        yield line


def _cells(line: str) -> list[str]:
    return [part.strip() for part in re.split(r"(?<!\\)\|", line)[1:-1]]
