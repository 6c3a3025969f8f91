"""The main claims of the papers as one page: a line each, with what was found at both sizes."""

import re
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from fedtailor.runs.reproduce import Decision, Headline, PaperClaims, Plan, Size
from fedtailor.runs.reproduce.claims import Verdict
from fedtailor.runs.statistics import CRITERION, comparisons_text
from fedtailor.version import RESULTS
from fedtailor.views.numbers import NOTHING
from fedtailor.views.reproduction import CLAIMS, LEVEL, page_of
from fedtailor.views.tables import Grid

FILE = "claims.md"
NOT_RUN: dict[Size, str] = {"laptop": "not run at this version", "paper": "not run at the paper's size"}
NO_TABLE = "no table tests it"
NAMED = 2  # the number of comparisons that are named one by one; more are summarised
VERDICTS: tuple[Verdict, ...] = ("holds", "level", "does not", "not decidable at this size")
ABOUT = (
    "*Laptop*: data, networks and rounds cut for two cores, as the recipe says. *Paper's size*: the clients, samples, "
    "network, epochs and rates of the paper; what still differs stands above the tables. A difference is that of the "
    "claim's row and the row that it is compared with, as a mean over the seeds with its 95 % interval; of several "
    "comparisons, the smallest and the largest mean. A claim that no paper makes is ours, about laptop size alone. "
)


def claims_text(papers: Sequence[PaperClaims], pages: Path) -> str:
    """The page as Markdown.

    Parameters
    ----------
    papers
        The claims of every recipe.
    pages
        The folder with the pages of the tables. The page of claims lies beside it, and links to those that exist.
    """
    folder = papers[0].plans["laptop"].folder.resolve().parent.name
    made = sum(
        one.run for paper in papers for line in paper.headlines for these in line.decisions.values() for one in these
    )
    written = f"Written by `fedtailor reproduce {folder} --claims` from the records of results version {RESULTS}."
    parts = ["# The papers' main claims, and what we find", "", written, "", ABOUT.strip(), ""]
    parts += [f"{CRITERION} {CLAIMS} {LEVEL} {comparisons_text(made) if made else ''}".strip(), ""]
    for paper in papers:
        parts += [f"## {paper.title}", "", _grid(paper, pages).markdown(), *_not_run(paper)]
    return "\n".join(parts)


def _grid(paper: PaperClaims, pages: Path) -> Grid:
    rows = []
    for line in paper.headlines:
        laptop, full = line.decisions["laptop"], line.decisions["paper"]
        ours = (
            difference_text(laptop, "laptop"),
            verdict_text(laptop),
            difference_text(full, "paper"),
            verdict_text(full),
        )
        rows.append((line.claim.says, line.claim.paper or NOTHING, *ours, _links(paper, line, pages)))
    header = ("claim", "paper", "ours, laptop", "verdict", "ours, paper's size", "verdict", "table")
    return Grid(header, tuple(rows), words=frozenset(range(len(header))), sentences=True)


def difference_text(decisions: Sequence[Decision], size: Size) -> str:
    """What was measured of a claim at a size."""
    run = [one for one in decisions if one.run]
    if not decisions:
        return NO_TABLE
    if not run:
        return NOT_RUN[size]
    known = [one for one in run if one.differences]
    where = len(decisions) > 1
    if not known:
        text = "no seed reached the target"
    elif len(known) <= NAMED:
        text = "; ".join(f"{_place(one, decisions)}{_difference(one)}" if where else _difference(one) for one in known)
    else:
        means = [fmean(one.differences) for one in known]
        text = f"{min(means):+.1f} to {max(means):+.1f} {known[0].unit}{_seeds(known)}"
    return text + _limits(run, decisions)


def verdict_text(decisions: Sequence[Decision]) -> str:
    """What the criterion says of a claim at a size."""
    run = [one.verdict for one in decisions if one.run]
    if not run:
        return NOTHING
    if len(run) == 1:
        return run[0]
    counts = [(word, run.count(word)) for word in VERDICTS if word in run]
    return ", ".join(f"{word}: {count}" for word, count in counts) + f" (of {len(run)})"


def anchor(title: str) -> str:
    """The name that Markdown pages give to a heading.

    >>> anchor("Table 1: beta = 0.6")
    'table-1-beta--06'
    """
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def _difference(one: Decision) -> str:
    found = one.interval
    if found is None:
        return f"{fmean(one.differences):+.1f} {one.unit}{_seeds([one])}"
    return f"{found.mean:+.1f} [{found.low:+.1f}, {found.high:+.1f}] {one.unit}{_seeds([one])}"


def _seeds(decisions: Sequence[Decision]) -> str:
    counts = sorted({len(one.differences) for one in decisions})
    text = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f" ({text} seed{'' if counts == [1] else 's'})"


def _place(one: Decision, decisions: Sequence[Decision]) -> str:
    """The column of a comparison, or the other row if that is what differs."""
    columns = {other.column for other in decisions}
    return f"{one.column}: " if len(columns) > 1 else f"{one.other}: "


def _limits(run: Sequence[Decision], decisions: Sequence[Decision]) -> str:
    """Which part of the claim was run, if not all."""
    parts = []
    if len(run) < len(decisions):
        parts.append(f"{len(run)} of {len(decisions)} comparisons run")
    if any(one.known < one.rows for one in run):
        fewest = min(one.known for one in run)
        parts.append(f"against {fewest} of {max(one.rows for one in run)} rows")
    return f"; {', '.join(parts)}" if parts else ""


def _links(paper: PaperClaims, line: Headline, pages: Path) -> str:
    """The tables of a claim, as far as their pages exist."""
    claim = line.claim
    if claim.table is None:
        place = pages / f"{claim.page}.md"
        return f"[{claim.page}]({pages.name}/{claim.page}.md)" if claim.page and place.exists() else NOTHING
    found = [text for plan in paper.plans.values() if (text := _link(plan, claim.table, pages))]
    return ", ".join(found) or NOTHING


def _link(plan: Plan, table: str, pages: Path) -> str:
    """The link to a table, which says if its page was made by another version."""
    if table not in plan.declaration.tables:
        return ""
    page = page_of(plan, table)
    place = pages / f"{page}.md"
    if not place.exists():
        return ""
    version = re.search(r"results version (\d+)", place.read_text(encoding="utf-8"))
    if version is None or int(version[1]) != RESULTS:
        return f"[page of another version]({pages.name}/{page}.md)"
    name = table if plan.size == "laptop" else f"{table}, paper's size"
    return f"[{name}]({pages.name}/{page}.md#{anchor(plan.declaration.tables[table].title)})"


def _not_run(paper: PaperClaims) -> list[str]:
    """The tables that were not, or only partly, run at the paper's size."""
    titles = {name: declared.title for name, declared in paper.plans["paper"].declaration.tables.items()}
    tables = paper.coverage["paper"]
    none = [titles[one.table] for one in tables if not one.done]
    part = [f"{titles[one.table]} ({one.done} of {one.runs} runs)" for one in tables if 0 < one.done < one.runs]
    parts = []
    if part:
        parts += ["Run in part at the paper's size:", "", *(f"* {title}" for title in part), ""]
    if none:
        parts += ["Not run at the paper's size:", "", *(f"* {title}" for title in none), ""]
    return parts
