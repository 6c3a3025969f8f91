"""A web service for an exported model: MODEL=client-3 uvicorn serve:app. It needs no FedTailor."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

MOST = 1000  # samples in a request

folder = Path(os.environ["MODEL"])
card = json.loads((folder / "card.json").read_text(encoding="utf-8"))
session = onnxruntime.InferenceSession(folder / "model.onnx")
app = FastAPI(title="A model trained with FedTailor")


class Request(BaseModel):
    samples: list[list[Any]]


@app.get("/card")
def read_card() -> dict[str, Any]:
    return card


@app.post("/predict")
def predict(request: Request) -> dict[str, Any]:
    if not 0 < len(request.samples) <= MOST:
        raise HTTPException(422, f"send 1 to {MOST} samples")
    found = session.run(None, {"samples": as_array(request.samples)})
    if not card["classes"]:
        return {"predictions": found[0].tolist()}
    chances = found[1]
    names = [card["classes"][place] for place in chances.argmax(1)]
    calibrated = "not_calibrated" not in card["calibration"]
    return {"predictions": names, "probabilities": chances.tolist(), "calibrated": calibrated}


def as_array(samples: list[list[Any]]) -> np.ndarray:
    """The samples in the form that the card describes; what does not fit is the caller's mistake."""
    try:
        if card["columns"]:
            samples = [
                [cell(value, *column) for value, column in zip(row, card["columns"], strict=True)] for row in samples
            ]
        x = np.array(samples, np.float64)
        kind = np.dtype(card["sample"]["type"])
        if x.shape[1:] != tuple(card["sample"]["shape"]):
            raise ValueError(f"a sample has shape {tuple(card['sample']['shape'])}, not {x.shape[1:]}")
        if kind.kind != "f" and not (np.isfinite(x).all() and (x == x.astype(kind)).all()):
            raise ValueError(f"values must be whole numbers of type {kind}")
        if np.isnan(x).any() and (card["preprocessing"] or {}).get("impute", "none") == "none":
            raise ValueError("the model was trained without missing values")
    except (TypeError, ValueError) as error:
        raise HTTPException(422, str(error)) from None
    return x.astype(kind)


def cell(value: Any, name: str, categories: list[str]) -> float:
    """A value of a table: a number, the code of a category, or NaN."""
    if value is None:
        return float("nan")
    if not categories:
        return float(value)
    if str(value) not in categories:
        raise ValueError(f"{value!r} is no category of {name!r}: {', '.join(categories)}")
    return float(categories.index(str(value)))
