"""The advice on a method: the answer in sentences, the ranking, files, a picture, and the next command."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedtailor.runs.advice import Advice, Standing
from fedtailor.runs.advice.reasons import verdict
from fedtailor.runs.statistics import CRITERION, SEEDS, UNDECIDED
from fedtailor.views import console
from fedtailor.views.comparison import difference_text, outcome_text
from fedtailor.views.curves import COLOURS, FAINT, GREY, INK, new_figure, title
from fedtailor.views.files import write_texts
from fedtailor.views.numbers import duration, figures, measured
from fedtailor.views.tables import Grid
from fedtailor.views.tuning import next_command

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN = 12  # methods that the terminal shows


def show_advice(advice: Advice, as_json: bool) -> None:
    """Write the tables and the picture of an advice, and print it."""
    written = write_advice(advice)
    if as_json:
        console.show_json({**advice.as_dict(), "files": [str(path) for path in written]})
        return
    console.show(
        ranking(advice, SHOWN).page(), f"use {advice.method} ({verdict(advice.standings) or 'the only candidate'}):"
    )
    console.show(*(f"- {sentence}" for sentence in advice.reasons), *(f"note: {one}" for one in remarks(advice)))
    if advice.left_out:
        left = ", ".join(one.method for one in advice.left_out)
        console.show(f"left out by a rule: {left}; {advice.folder / 'advice.md'} says why")
    console.show(f"settings: {advice.written}", f"tables, picture: {', '.join(map(str, written))}")
    console.show(next_command(advice.written, 0))


def write_advice(advice: Advice) -> list[Path]:
    """Write the ranking as CSV and Markdown, the advice as JSON, and its picture."""
    document = console.json_text(advice.as_dict())
    texts = {"advice.md": advice_markdown(advice), "advice.csv": advice_csv(advice), "advice.json": document}
    return write_texts(advice.folder, texts, {"advice.png": advice_figure(advice)})


def ranking(advice: Advice, most: int | None = None) -> Grid:
    """The methods, best first: what they reached, the paired difference, and what they cost."""
    unit = " %" * advice.percent
    rows = tuple(
        (
            one.method,
            measured(one.value, advice.percent),
            "recommended" if place == 0 else difference_text(one.difference),
            outcome_text(one.difference),
            settings_text(one),
            str(one.rounds),
            figures(one.megabytes),
            f"{one.work:.3g}",
            one.failure or duration(one.seconds),
        )
        for place, one in enumerate(advice.standings[:most])
    )
    left = len(advice.standings) - len(rows)
    return Grid(
        (
            "method",
            f"{advice.model}{unit}",
            "recommended minus it",
            f"{advice.method} is",
            "settings",
            "rounds",
            "MB",
            "work",
            "its trials took",
        ),
        rows,
        frozenset({0, 3, 4, 8}),
        title=f"{advice.name}: {advice.measure} on validation data, {over_seeds(advice.seeds)}",
        notes=(f"{left} more methods are in {advice.folder / 'advice.csv'}.",) if left else (),
    )


def over_seeds(seeds: Sequence[int]) -> str:
    """What a mean is over.

    >>> over_seeds((0, 1, 2)), over_seeds((4,))
    ('mean over 3 seeds', 'seed 4')
    """
    return f"mean over {len(seeds)} seeds" if len(seeds) > 1 else f"seed {seeds[0]}"


def settings_text(one: Standing) -> str:
    """The settings of a method that are not the experiment's own."""
    return ", ".join(f"{key}={value:.4g}" for key, value in one.changes.items()) or "yours"


def remarks(advice: Advice) -> list[str]:
    """What a reader of an advice must know."""
    train, tested = advice.samples
    seeds, choosing = (", ".join(map(str, some)) for some in (advice.seeds, advice.choosing))
    few = [f"fewer than {SEEDS} seeds decide nothing: give --seeds 0,1,2"] if len(advice.seeds) < SEEDS else []
    if not few and UNDECIDED in {one.difference.outcome for one in advice.standings if one.difference is not None}:
        few = ["more seeds decide more: --seeds 0,1,2,3,4"]
    return [
        *advice.notes,
        *few,
        f"trials train on {train} samples and are measured on {tested} validation samples; test samples were removed "
        f"before the first trial. Only methods with {advice.rounds} rounds ran to the end, on seeds {seeds}; seeds "
        f"{choosing} chose them. What the settings are worth is what a run measures on test data.",
        "a difference is paired over seeds that share clients and start; MB: what all clients received and sent; work: "
        "passes over the data, compared with FedAvg.",
    ]


def advice_markdown(advice: Advice) -> str:
    """The advice as a page."""
    left = Grid(
        ("method", "why it was left out"),
        tuple((one.method, one.reason) for one in advice.left_out),
        frozenset({0, 1}),
    )
    parts = [f"# {advice.name}: use {advice.method}\n", *(f"* {sentence}" for sentence in advice.reasons), ""]
    parts += [ranking(advice).markdown(), *(f"* {sentence}" for sentence in remarks(advice)), f"* {CRITERION}", ""]
    return "\n".join([*parts, left.markdown()] if advice.left_out else parts)


def advice_csv(advice: Advice) -> str:
    """Every method in full precision; percentages are shares of one, differences are in points or %."""
    rows: list[dict[str, Any]] = []
    for one in advice.standings:
        values = " ".join(f"{seed}:{value!r}" for seed, value in one.values.items())
        rows.append({**one.as_dict(), "changes": settings_text(one), "values": values})
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def advice_figure(advice: Advice) -> "Figure":
    """Every method's value by seed; methods that did not run to the end are pale."""
    shown = [one for one in advice.standings if one.value is not None][:SHOWN]
    figure = new_figure(9, 1.4 + 0.36 * len(shown))
    axes = figure.subplots()
    scale = 100 if advice.percent else 1
    for place, one in enumerate(shown):
        colour = COLOURS[1] if place == 0 else COLOURS[0] if one.last else GREY
        values = [scale * value for value in one.values.values()]
        axes.plot(values, [place] * len(values), "o", color=colour, alpha=0.45, ms=5)
        axes.plot([scale * (one.value or 0.0)], [place], "D", color=colour, ms=8, zorder=4)
    names = [one.method if one.last else f"{one.method} ({one.rounds} rounds)" for one in shown]
    axes.set_yticks(range(len(shown)), names, color=INK)
    axes.invert_yaxis()
    axes.set_xlabel(f"{advice.measure} of the {advice.model} models on validation data{' (%)' * advice.percent}")
    axes.grid(axis="x", color=FAINT)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    title(axes, advice.name, "diamond: mean over seeds; dot: a seed; grey: ended early, after fewer rounds")
    return figure
