"""The result of a search for settings: a table of trials, a picture, files, and the next command."""

import csv
import io
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedtailor.runs.tuning import TrialRow, Tuned, Tuning
from fedtailor.views import console
from fedtailor.views.curves import COLOURS, FAINT, GREY, INK, new_figure, title
from fedtailor.views.files import write_texts
from fedtailor.views.numbers import NOTHING, duration, measured
from fedtailor.views.tables import Grid

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHOWN = 10  # trials that the terminal shows of each method


def show_tuning(tuning: Tuning, as_json: bool) -> None:
    """Write the tables and the picture of a search, and print its result."""
    written = write_tuning(tuning)
    if as_json:
        console.show_json({**tuning.as_dict(), "files": [str(path) for path in written]})
        return
    for tuned in tuning.methods:
        console.show(trials_grid(tuning, tuned, SHOWN).page(), *tuned_lines(tuning, tuned))
    if len(tuning.methods) > 1:
        console.show(methods_grid(tuning).page())
    console.show(*(f"note: {sentence}" for sentence in remarks(tuning)))
    console.show(f"settings: {', '.join(str(path) for path in tuning.written.values())}")
    console.show(f"tables, picture: {', '.join(map(str, written))}")
    console.show(*(next_command(path, place) for place, path in enumerate(tuning.written.values())))


def write_tuning(tuning: Tuning) -> list[Path]:
    """Write all trials as CSV and Markdown, the search as JSON, and its picture."""
    texts = {
        "trials.csv": trials_csv(tuning),
        "trials.md": tuning_markdown(tuning),
        "tuning.json": console.json_text(tuning.as_dict()),
    }
    return write_texts(tuning.folder, texts, {"trials.png": trials_figure(tuning)})


def trials_grid(tuning: Tuning, tuned: Tuned, most: int | None = None) -> Grid:
    """The trials of a method, best first; trials that ended early by how far they came."""
    sign = -1 if tuning.less_is_better else 1
    stops = sorted({stop for trial in tuned.trials for stop in trial.curve})
    ordered = sorted(tuned.trials, key=lambda trial: (-trial.rounds, -sign * _last(trial, sign), trial.number))
    ordered.sort(key=lambda trial: trial.value is None)
    rows = []
    for trial in ordered[:most]:
        name = f"{trial.number}{' (your settings)' if trial.number == 0 else ''}"
        values = (_value(trial.values[one.key]) for one in tuned.space)
        curve = (measured(trial.curve.get(stop), tuning.percent) for stop in stops)
        rows.append((name, *values, *curve, measured(trial.value, tuning.percent), _state(trial)))
    unit = " %" * tuning.percent
    header = ("trial", *(one.key for one in tuned.space), *(f"round {stop}{unit}" for stop in stops))
    left = len(tuned.trials) - len(rows)
    return Grid(
        (*header, f"{tuning.model}{unit}", "how it ended"),
        tuple(rows),
        frozenset({0, len(header) + 1}),
        title=f"{tuned.method}: {tuning.measure} on validation data, best trials first",
        notes=(f"{left} more trials are in {tuning.folder / 'trials.csv'}.",) if left else (),
    )


def methods_grid(tuning: Tuning) -> Grid:
    """The best trial of every method."""
    unit = " %" * tuning.percent
    rows = tuple(
        (
            tuned.method,
            measured(tuned.best.value, tuning.percent),
            measured(tuned.own.value, tuning.percent),
            str(len(tuned.trials)),
            ", ".join(f"{key}={_value(value)}" for key, value in tuned.best.values.items()),
        )
        for tuned in tuning.methods
    )
    return Grid(
        ("method", f"tuned{unit}", f"before{unit}", "trials", "settings"),
        rows,
        frozenset({0, 4}),
        title=f"all methods, with the same number of trials: {tuning.measure} on validation data",
    )


def tuned_lines(tuning: Tuning, tuned: Tuned) -> list[str]:
    """The result of a method in a few sentences."""
    best, own = tuned.best, tuned.own
    chosen = ", ".join(f"{key} = {_value(value)}" for key, value in best.values.items())
    after, before = measured(best.value, tuning.percent), measured(own.value, tuning.percent)
    unit = " %" * tuning.percent
    if best.number == 0:
        lines = [f"no trial was better than your settings ({chosen}): {before}{unit}"]
    else:
        lines = [f"best: trial {best.number} with {chosen}: {after}{unit} (your settings: {before}{unit})"]
    if tuned.importance:
        shares = ", ".join(f"{key} {100 * share:.0f} %" for key, share in tuned.importance.items())
        lines.append(f"what the differences between complete trials are due to (fANOVA): {shares}")
    return lines


def remarks(tuning: Tuning) -> list[str]:
    """What a reader of a search must know."""
    train, tested = tuning.samples
    many = f", mean over {len(tuning.seeds)} seeds" if len(tuning.seeds) > 1 else ""
    return [
        *tuning.notes,
        f"trials train on {train} samples and are measured on {tested} validation samples{many}; test samples were "
        f"removed before the first trial. The best of many trials looks better than it is: run it to measure it.",
    ]


def next_command(path: Path, place: int) -> str:
    return f"{'next:' if place == 0 else '     '} fedtailor run {path}"


def trials_csv(tuning: Tuning) -> str:
    """Every trial in full precision; percentages are shares of one."""
    keys = list(dict.fromkeys(one.key for tuned in tuning.methods for one in tuned.space))
    stops = sorted({stop for tuned in tuning.methods for trial in tuned.trials for stop in trial.curve})
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    rounds = [f"round_{stop}" for stop in stops]
    writer.writerow(["method", "trial", *keys, *rounds, "value", "state", "rounds", "seconds", "failure"])
    for method, trial in ((tuned.method, trial) for tuned in tuning.methods for trial in tuned.trials):
        values = [trial.values.get(key, "") for key in keys]
        curve = [trial.curve.get(stop, "") for stop in stops]
        value = "" if trial.value is None else trial.value
        facts = [trial.state, trial.rounds, f"{trial.seconds:.3f}", trial.failure]
        writer.writerow([method, trial.number, *values, *curve, value, *facts])
    return text.getvalue()


def tuning_markdown(tuning: Tuning) -> str:
    """The search as a page."""
    parts = [f"# {tuning.name}: settings by {tuning.measure} on validation data\n"]
    if len(tuning.methods) > 1:
        parts.append(methods_grid(tuning).markdown())
    for tuned in tuning.methods:
        ranges = "; ".join(map(str, tuned.space))
        parts += [f"## {tuned.method}\n", f"Searched: {ranges}.\n", trials_grid(tuning, tuned).markdown()]
        parts += [f"{line}\n" for line in tuned_lines(tuning, tuned)]
    return "\n".join([*parts, *(f"* {sentence}" for sentence in remarks(tuning))]) + "\n"


def trials_figure(tuning: Tuning) -> "Figure":
    """Every trial by each setting that was searched; a row of panels for each method."""
    widest = max(len(tuned.space) for tuned in tuning.methods)
    figure = new_figure(max(6.0, 3.6 * widest), 3.2 * len(tuning.methods) + 0.6)
    panels = figure.subplots(len(tuning.methods), widest, squeeze=False, sharey="row")
    for tuned, line in zip(tuning.methods, panels, strict=True):
        for axes in line[len(tuned.space) :]:
            axes.set_visible(False)
        for place, (one, axes) in enumerate(zip(tuned.space, line, strict=False)):
            _draw_setting(axes, tuning, tuned, one.key)
            if one.log:
                axes.set_xscale("log")
            if place == 0:
                axes.set_ylabel(f"{tuning.measure}{' (%)' * tuning.percent}")
                axes.set_title(tuned.method, loc="left", fontsize=9, color=GREY)
    line = "each dot is a trial on validation data; hollow: ended early; star: the best; square: your settings"
    title(panels[0][0], tuning.name, f"{tuning.methods[0].method}: {line}")
    return figure


def _draw_setting(axes: "Axes", tuning: Tuning, tuned: Tuned, key: str) -> None:
    scale, sign = (100 if tuning.percent else 1), (-1 if tuning.less_is_better else 1)
    words = any(isinstance(trial.values[key], str | bool) for trial in tuned.trials)
    for trial in tuned.trials:
        level = _last(trial, sign)
        if not math.isfinite(level):
            continue
        best = trial is tuned.best
        marker = "*" if best else "s" if trial.number == 0 else "o"
        colour = COLOURS[1] if best else INK if trial.number == 0 else COLOURS[0]
        face = colour if trial.value is not None else "none"
        where = str(trial.values[key]) if words else trial.values[key]
        axes.plot(
            [where], [scale * level], marker, color=colour, mfc=face, ms=13 if best else 6, zorder=4 if best else 3
        )
    axes.set_xlabel(key)
    axes.grid(color=FAINT)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def _last(trial: TrialRow, sign: int) -> float:
    """The value of a trial or, if it ended early, its last one."""
    if trial.value is not None:
        return trial.value
    return trial.curve[max(trial.curve)] if trial.curve else -sign * math.inf


def _state(trial: TrialRow) -> str:
    if trial.state == "failed":
        return f"failed: {trial.failure}"
    spent = duration(trial.seconds)
    return f"complete, {spent}" if trial.state == "complete" else f"stopped after round {trial.rounds}, {spent}"


def _value(value: Any) -> str:
    return NOTHING if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
