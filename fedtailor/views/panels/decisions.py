"""Any declared decision: its answers in every round by client, what the agent saw, and its rewards."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from fedtailor.runs import Run
from fedtailor.views.panels.kinds import Frame, Labels, Panel, counted, curves, heat, mean, some, table_over_rounds

Row = Mapping[str, Any]
Declared = Mapping[str, Any]  # an entry of `Run.declared`
Answer = dict[Any, float] | float  # by slot (a client, or the name of an own slot), or one number for all
WIDE = 4  # a feature of more numbers is not written out


def panels(run: Run, rows: Sequence[Row] | None = None) -> list[Panel]:
    """For every decision and action: the answers by client, over rounds."""
    found, label, known = [], Labels(run), run.declared()
    for name, those in by_name(run.decisions() if rows is None else rows).items():
        declared = known.get(name) or undeclared(those[0])
        for action in declared["actions"]:
            given = [(counted(run, row), row["about"], answer(declared, row, action)) for row in those]
            title = f"Decision: {name}" + (f", {action}" if action not in ("", name) else "")
            found.append(_panel(title, action or name, declared["actions"][action]["kind"], given, label))
    return found


def rewards(run: Run, rows: Sequence[Row] | None = None) -> list[Panel]:
    """The mean reward of every round, by decision."""
    found = []
    for name, those in by_name(run.decisions() if rows is None else rows).items():
        by_round: dict[int, list[float]] = defaultdict(list)
        for row in those:
            if row["reward"] is not None:
                by_round[counted(run, row)].append(row["reward"])
        if by_round:
            line = {"reward": (sorted(by_round), [mean(by_round[n]) for n in sorted(by_round)])}
            note = "The mean over the decisions of a round."
            found.append(curves(f"Rewards of {name}", note, line, x="round", y="reward"))
    return found


def by_name(rows: Sequence[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row["name"], []).append(row)
    return found


def undeclared(row: Row) -> Declared:
    """A stand-in for the declaration, which runs of earlier versions did not store."""
    per_slot = row["action"].numel() == row["mask"].numel()
    return {"features": {}, "actions": {"": {"per_slot": per_slot, "kind": "as recorded"}}}


def answer(declared: Declared, row: Row, action: str) -> Answer:
    """The numbers of an action."""
    numbers, slots = row["action"].flatten().tolist(), len(row["mask"])
    if not action and len(numbers) not in (1, slots):  # several actions of which the names are not known
        return {f"number {place}": number for place, number in enumerate(numbers)}
    begin = 0
    for name, one in declared["actions"].items():
        width = slots if one["per_slot"] else 1
        part = numbers[begin : begin + width]
        begin += width
        if name == action and one["per_slot"]:
            keys = row["slots"] or [f"slot {place}" for place in range(width)]
            filled = zip(keys, part, row["mask"].tolist(), strict=True)
            return {key: value for key, value, present in filled if present and key is not None}
        if name == action:
            return float(part[0])
    raise KeyError(action)


def about(run: Run, client: int, most: int) -> list[dict[str, Any]]:
    """The latest decisions about a client: the answer, what the agent saw of it, and the reward."""
    known, label, found = run.declared(), Labels(run), []
    for row in run.decisions():
        if row["about"] != client and (row["about"] is not None or client not in (row["slots"] or ())):
            continue
        declared = known.get(row["name"]) or undeclared(row)
        answers = {action: answer(declared, row, action) for action in declared["actions"]}
        said = {action or row["name"]: _said(value, client, row["about"], label) for action, value in answers.items()}
        saw = _seen(declared, row, client)
        one = {"round": counted(run, row), "name": row["name"], "answer": said, "saw": saw, "reward": row["reward"]}
        found.append(one)
    return found[-most:]


def _said(value: Answer, client: int, about: int | None, label: Labels) -> str:
    """An answer in words: the client's own number, or the largest weights."""
    if not isinstance(value, dict):
        return f"{value:.4g}"
    if about is None:
        return f"{value[client]:.4g}" if client in value else "–"
    largest = sorted(value.items(), key=lambda item: -item[1])[:5]
    return ", ".join(f"{label(key)}: {number:.3g}" for key, number in largest)


def _seen(declared: Declared, row: Row, client: int) -> dict[str, str]:
    """What the agent saw of a client, by feature: its numbers, or how many there are."""
    slots = row["slots"] or []
    place = next((slots.index(key) for key in (client, "own") if key in slots), None)
    if place is None:
        return {}
    numbers, begin, found = row["observation"][place].tolist(), 0, {}
    for name, width in declared["features"].items():
        part = numbers[begin : begin + width]
        found[name] = ", ".join(f"{number:.4g}" for number in part) if width <= WIDE else f"{width} numbers"
        begin += width
    return found


def _panel(title: str, action: str, kind: str, given: Sequence[tuple[int, Any, Answer]], label: Labels) -> Panel:
    if all(about is None and not isinstance(value, dict) for _, about, value in given):
        line = ([n for n, _, _ in given], [value for _, _, value in given if not isinstance(value, dict)])
        return curves(title, f"One number for all clients ({kind}).", {action: line}, x="round", y=action)
    if any(about is not None and isinstance(value, dict) for _, about, value in given):
        note = f"A row is the client that the decision is about, a column what its numbers belong to ({kind})."
        return heat(title, note, _by_round(given, label), x="slot", y="client")
    values: dict[Any, dict[int, float]] = defaultdict(dict)
    for n, about, value in given:
        for key, number in (value if isinstance(value, dict) else {about: value}).items():
            values[key][n] = number
    frame = table_over_rounds(values, label)
    note = f"A row is a client, a column a round ({kind}).{some(len(frame.down), len(values))}"
    return heat(title, note, [frame], x="round", y="client")


def _by_round(given: Sequence[tuple[int, Any, Answer]], label: Labels) -> list[Frame]:
    found: dict[int, dict[Any, dict[Any, float]]] = defaultdict(dict)
    for n, about, value in given:
        found[n][about] = value if isinstance(value, dict) else {"all": value}
    frames = []
    for n, those in sorted(found.items()):
        across = sorted(
            {slot for value in those.values() for slot in value}, key=lambda key: (isinstance(key, str), key)
        )
        rows = [[value.get(slot) for slot in across] for value in those.values()]
        frames.append(Frame(f"round {n}", rows, [label(one) for one in those], [label(slot) for slot in across]))
    return frames
