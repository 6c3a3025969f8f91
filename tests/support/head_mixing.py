"""Settings of small federations for pFedRLLA and our form of it."""

from typing import Any

TWO = ([0.0], [4.0, 4.0, 4.0])  # targets of client 0 and client 1
AGENT = {"hidden", "warmup", "every", "updates", "noise", "network", "actor_lr", "critic_lr", "penalty", "decider"}
EMBEDDING = {"kind", "size", "side", "steps"}

PRODUCT: dict[str, Any] = {
    "rounds": 2,
    "model": {"name": "tests.support.problem:Product"},
    "training": {"lr": 0.1, "epochs": 1, "batch_size": 1000, "loss": "squared-error"},
    "method": {"name": "pfedrlla", "embedding": {"kind": "pca", "size": 2}},
    "engine": {"kind": "inline"},
}
DIGITS: dict[str, Any] = {
    "rounds": 3,
    "validation": True,
    "data": {"clients": 8, "samples": 400, "partition": {"kind": "pathological", "classes": 2}},
    "model": {"name": "linear"},
    "training": {"epochs": 1},
    "participation": {"ratio": 0.5},
    "engine": {"kind": "inline"},
    "method": {
        "name": "pfedrlla",
        "embedding": {"size": 8, "steps": 2},
        "agents": {"head-weights": {"hidden": [16, 16], "warmup": 1, "every": 1}},
    },
}


def changed(settings: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """With other settings of the method, of its embedding and of its agent."""
    method = settings["method"]
    tables = method.get("agents", {})
    agent = {**tables.get("head-weights", tables.get("head_weights", {}))}
    agent |= {key: changes.pop(key) for key in list(changes) if key in AGENT}
    embedding = {**method.get("embedding", {})}
    embedding |= {key: changes.pop(key) for key in list(changes) if key in EMBEDDING}
    return {**settings, "method": {**method, **changes, "embedding": embedding, "agents": {"head-weights": agent}}}


def after(settings: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Mixed after the training, with the reward of the paper, an agent without a prior, and no discount."""
    agent = {"network": "mlp", "critic_lr": 1e-3, "noise": 0.03, "updates": 5, "penalty": 0.1}
    method = {"gamma": 1.0, "b1": 1.0, "b3": 2.0, "start": "none", **agent, **changes}
    return changed(changed(settings, name="pfedrlla-after"), **method)
