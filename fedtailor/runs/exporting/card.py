"""The model card of an export as a page: the same facts as its JSON card, for people."""

import json
from typing import Any

from fedtailor.errors import one_line
from fedtailor.runs.exporting.formats import FILES

MODEL_CARD = "MODEL_CARD.md"
SHOWN = 20  # classes, columns or inputs that the page lists


def page(card: dict[str, Any]) -> str:
    """The card as Markdown."""
    parts = [
        f"# {title(card)}",
        _sentence(card),
        "## Use it",
        *_uses(card),
        "## Inputs and outputs",
        _lines(_inputs(card)),
        "## Training",
        _lines(_training(card)),
        "## Measures",
        _lines(_measures(card)),
        "## Calibration",
        calibration_sentence(card),
        "## Privacy",
        "\n".join(f"* {one_line(text, 2000)}" for text in card.get("privacy", ())) or NO_PRIVACY,
        "## Checks",
        _checks(card),
        "## Licence",
        _lines(_licence(card)),
        "## Versions",
        ", ".join(f"{name} {value}" for name, value in card["environment"].items()) + ".",
    ]
    return "\n\n".join(parts) + "\n"


def title(card: dict[str, Any]) -> str:
    """Whose model it is."""
    if "server_model" in card:
        return f"The model {card['server_model']} of {one_line(card['run'])}"
    who = card.get("name") or card.get("node")
    return (
        f"The model of {one_line(str(who)) if who else 'client ' + str(card.get('client'))} in {one_line(card['run'])}"
    )


def calibration_sentence(card: dict[str, Any]) -> str:
    """What the probabilities are worth."""
    if not card["classes"]:
        return "A regression has no probabilities."
    found = card["calibration"]
    if "not_calibrated" in found:
        return f"Not calibrated: {found['not_calibrated']}. The probabilities are those that the network gives."
    return (
        f"The outputs are divided by the temperature {found['temperature']:.4g}, fitted to "
        f"{found['validation_samples']} validation samples of the client. Their mean log-loss went from "
        f"{found['log_loss_before']:.4g} to {found['log_loss_after']:.4g}. Test samples were not used."
    )


NO_PRIVACY = "The run had no differential privacy: the weights may reveal training samples."
_FEDTAILOR = """With FedTailor:

```python
import fedtailor
model = fedtailor.load_model(".")  # this folder; then model.predict(samples)
```"""
_TORCH = """With torch alone:

```python
import json, pathlib, torch
card = json.loads(pathlib.Path("card.json").read_text(encoding="utf-8"))
program = torch.export.load("model.pt2").module()
samples = torch.zeros({shape}, dtype=torch.{kind})  # raw samples, as many as you like
{result} = program(samples)
print({shown})
```

Reading a `.pt2` file can run code: load only files that you trust."""
_ONNX = """With onnxruntime and numpy alone:

```python
import json, numpy, onnxruntime, pathlib
card = json.loads(pathlib.Path("card.json").read_text(encoding="utf-8"))
session = onnxruntime.InferenceSession("model.onnx")
samples = numpy.zeros({shape}, "{kind}")  # raw samples, as many as you like
{result} = session.run(None, {{"samples": samples}})
print({shown})
```"""


def _uses(card: dict[str, Any]) -> list[str]:
    facts = {
        "shape": (2, *card["sample"]["shape"]),
        "kind": card["sample"]["type"],
        "result": "outputs, probabilities" if card["classes"] else "outputs,",
        "shown": '[card["classes"][place] for place in probabilities.argmax(1)]' if card["classes"] else "outputs",
    }
    uses = {"safetensors": _FEDTAILOR, "torch": _TORCH.format(**facts), "onnx": _ONNX.format(**facts)}
    return [uses[name] for name, file in FILES.items() if file in card["files"]]


def _sentence(card: dict[str, Any]) -> str:
    kind = f"classifies into {len(card['classes'])} classes" if card["classes"] else "predicts numbers"
    return f"A network `{card['network']}` that {kind}, trained with federated learning by FedTailor."


def _inputs(card: dict[str, Any]) -> dict[str, str]:
    sample, columns = card["sample"], card["columns"]
    facts = {"a sample": f"{sample['type']} of shape {tuple(sample['shape'])}"}
    if columns:
        facts["columns in this order"] = _listed(
            [f"{name} ({' / '.join(values)})" if values else name for name, values in columns]
        )
    if any(values for _, values in columns):
        facts["a category"] = "is the number of its name in the list, from 0"
    if card["inputs"]["vocabulary"]:
        facts["tokens"] = f"0 to {card['inputs']['vocabulary'] - 1}, 0 is padding"
    prepared = card["preprocessing"]
    inside = "inside the torch and ONNX programs, and in `preprocessing.json` or `card.json` for FedTailor"
    facts["pre-processing"] = inside if prepared or card["mean"] else "none"
    if prepared and prepared["impute"] != "none":
        facts["a missing value"] = "is NaN"
    if card["classes"]:
        facts["classes"] = _listed(card["classes"])
    return facts


def _training(card: dict[str, Any]) -> dict[str, str]:
    facts = {"run": card["run"], "rounds": str(card["rounds"]), "method": json.dumps(card["method"])}
    facts |= {"seed": str(card["seed"]), "data": str(card.get("data", "the node's own"))}
    if "samples" in card:
        facts["samples"] = ", ".join(f"{count} {part}" for part, count in card["samples"].items())
    facts["model"] = json.dumps(card["model"])
    return facts


def _measures(card: dict[str, Any]) -> dict[str, str]:
    if "scores" in card:  # of a new client
        return {f"after {row['passes']} passes": _scored(row) for row in card["scores"]}
    if "measures" not in card:
        return {"none": "the run recorded no score of this model"}
    return {card["measures"]["of"]: _scored(card["measures"])}


def _scored(row: dict[str, Any]) -> str:
    values = {name: row[name] for name in ("accuracy", "loss") if row.get(name) is not None}
    values |= {name: value for name, value in (row.get("measures") or {}).items() if value is not None}
    return ", ".join(f"{name} {value:.4g}" for name, value in values.items()) or "no value"


def _checks(card: dict[str, Any]) -> str:
    lines = [
        f"* `{FILES[name]}`, computed by {found['runtime']} on {found['samples']} of {found['of']}: the largest "
        f"difference from the run's model is {found['largest_difference']:.3g}"
        + (f"; {found['different_predictions']} predictions differ" if "different_predictions" in found else "")
        + "."
        for name, found in card["checks"].items()
    ]
    return "\n".join(lines) or "The weights are those of the run; there is no program to compare with them."


def _licence(card: dict[str, Any]) -> dict[str, str]:
    return {
        "model": card.get("licence") or "not stated; its owner decides (`fedtailor export --licence`)",
        "training data": card.get("data_licence") or "not stated; ask the owner of the data",
    }


def _listed(names: list[str]) -> str:
    more = f", ... ({len(names)} in all, see `card.json`)" if len(names) > SHOWN else ""
    return ", ".join(one_line(str(name)) for name in names[:SHOWN]) + more


def _lines(facts: dict[str, str]) -> str:
    return "\n".join(f"* {name}: {one_line(str(text), 4000)}" for name, text in facts.items())
