"""Pre-processing crosses rooms: from the settings to every engine, to the nodes of a federation and to exports."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedtailor
from fedtailor.data import DataSettings, Federation, build
from fedtailor.data.folder import write_clients
from fedtailor.data.preprocessing import Preprocessing
from fedtailor.engines import Inline, Processes
from fedtailor.errors import UserError
from fedtailor.runs import Resources, experiment
from tests.support.fingerprint import assert_same

HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")


def heart(**preprocess: Any) -> dict[str, Any]:
    return {
        "name": "heart",
        "rounds": 3,
        "data": {
            "source": "heart-disease",
            "preprocess": {"standardise": True, "impute": "mean", "indicator": True, **preprocess},
        },
        "model": {"arguments": {"hidden": 8}},
        "training": {"epochs": 1, "batch_size": 16, "lr": 0.05},
        "evaluation": {"every": 3},
        "engine": {"kind": "inline"},
    }


@pytest.fixture(scope="module")
def two() -> Iterator[Processes]:
    with Processes(2) as engine:
        assert isinstance(engine, Processes)
        yield engine


SCOPES = {
    "federation": heart(),
    "client": heart(statistics="client", impute="median"),
    "codes": heart(categories="codes", standardise=False),
}


@pytest.mark.parametrize("scope", SCOPES)
def test_engines_agree_on_prepared_samples(scope: str, two: Processes, tmp_path: Path) -> None:
    fedtailor.run(SCOPES[scope], folder=tmp_path / "inline", resources=Resources(engine=Inline())).close()
    fedtailor.run(SCOPES[scope], folder=tmp_path / "two", resources=Resources(engine=two)).close()
    assert_same(tmp_path / "inline", tmp_path / "two")


@pytest.mark.parametrize("scope", SCOPES)
def test_nodes_that_exchange_sums_give_the_bits_of_a_simulation(scope: str, tmp_path: Path) -> None:
    pytest.importorskip("flwr", reason="needs the extra 'flower'")
    from fedtailor.flower.coordinator.serving import serve_on
    from fedtailor.flower.node.node import Node
    from tests.support.federation import Wire, outcome, simulate

    values = SCOPES[scope]
    made = experiment({**values, "data": {**values["data"], "clients": 4}, "aggregation": {"clip": 0}})
    files = write_clients(Resources().federation(made), tmp_path / "clients")
    nodes = {c: Node(HOSPITALS[c], str(files[c]), tmp_path / f"state-{c}") for c in (2, 0, 3, 1)}
    with serve_on(Wire(nodes), made, tmp_path / "flower") as done:
        assert done.nodes == list(HOSPITALS)
    simulate(made, tmp_path / "inline").close()
    assert outcome(tmp_path / "flower") == outcome(tmp_path / "inline")
    kept = fedtailor.load_model(tmp_path / "state-3" / "heart" / "model")
    exported = fedtailor.load_model(fedtailor.export_client(tmp_path / "inline", 3, tmp_path / "export"))
    x = Resources().federation(made).samples.x
    assert kept.outputs(x).numpy().tobytes() == exported.outputs(x).numpy().tobytes()


def test_a_node_with_fewer_categories_agrees_with_the_others(tmp_path: Path) -> None:
    """Each node codes its categories as it finds them; counts by name give one coding for all."""
    pytest.importorskip("flwr", reason="needs the extra 'flower'")
    from fedtailor.data.newcomers import prepared_alike, relabelled
    from fedtailor.flower.coordinator.serving import serve_on
    from fedtailor.flower.node.node import Node
    from tests.support.federation import Wire, simulate

    made = experiment({**heart(), "data": {**heart()["data"], "clients": 4}, "aggregation": {"clip": 0}})
    federation = Resources().federation(made)
    files = write_clients(federation, tmp_path / "clients")
    for path in files:
        with np.load(path) as archive:
            arrays = dict(archive)
        coding = [json.loads(str(one)) for one in arrays["categories"]]
        for j, names in enumerate(coding):
            parts = [part for part in ("x", "x_test", "x_val") if part in arrays]
            seen = {int(v) for part in parts for v in arrays[part][:, j] if not np.isnan(v)} if names else set()
            own = sorted(seen, reverse=True)  # another order, and only those that this hospital has
            for part in parts if names else ():
                column = arrays[part][:, j]
                arrays[part][:, j] = [np.nan if np.isnan(v) else own.index(int(v)) for v in column]
            coding[j] = [names[code] for code in own]
        arrays["categories"] = np.array([json.dumps(one) for one in coding])
        np.savez(path, **arrays)
    nodes = {c: Node(HOSPITALS[c], str(files[c]), tmp_path / f"state-{c}") for c in range(4)}
    serve_on(Wire(nodes), made, tmp_path / "flower").close()
    simulate(made, tmp_path / "inline").close()
    agreed, known = (
        Preprocessing.from_dict(json.loads((tmp_path / run / "preprocessing.json").read_text()))
        for run in ("flower", "inline")
    )
    # the union of categories is sorted by name: another order of inputs, but the same inputs and replacements
    assert sorted(agreed.names) == sorted(known.names)
    for j, (column, same) in enumerate(zip(agreed.columns, known.columns, strict=True)):
        if column.categories:
            assert column.categories[int(agreed.fill[0, j])] == same.categories[int(known.fill[0, j])]
        else:
            assert [a[0, j] for a in (agreed.fill, agreed.mean, agreed.scale)] == [
                a[0, j] for a in (known.fill, known.mean, known.scale)
            ]
    x, samples = known.apply(federation.samples.x), nodes[2].samples
    mine = prepared_alike(relabelled(samples, agreed_outline(agreed)), agreed_outline(agreed), nodes[2].rows["train"])
    assert mine.preprocessing is not None
    order = [agreed.names.index(name) for name in known.names]
    rows = federation.train[2]
    assert (mine.preprocessing.apply(mine.x[nodes[2].rows["train"]])[:, order] == x[rows]).all()


def agreed_outline(made: Preprocessing) -> dict[str, Any]:
    columns = [[column.name, list(column.categories)] for column in made.columns]
    return {"classes": ["healthy", "disease"], "columns": columns, "preprocessing": made.as_dict()}


def scaled(federation: Federation) -> Federation:
    """The same federation, but client 0 counts in millionths."""
    x = federation.samples.x.copy()
    for part in (federation.train, federation.test):
        x[part[0]] *= 1e6
    return replace(federation, samples=replace(federation.samples, x=x))


@pytest.mark.parametrize(("preprocess", "learns"), [({}, False), ({"standardise": True, "statistics": "client"}, True)])
def test_a_client_scaled_by_a_million_trains(preprocess: dict[str, Any], learns: bool, tmp_path: Path) -> None:
    """Without pre-processing the same client does not learn, which shows that the scale matters."""
    data = {"source": "synthetic", "clients": 3, "partition": "iid", "synthetic": {"samples": 600, "classes": 3}}
    federation = scaled(build(DataSettings.model_validate(data), 0))
    settings = {
        "rounds": 5,
        "method": {"name": "fedper"},
        "data": {"preprocess": preprocess},
        "training": {"lr": 0.1, "epochs": 2},
        "engine": {"kind": "inline"},
    }
    with fedtailor.run(settings, folder=tmp_path / "run", federation=federation) as run:
        accuracy = {row["client"]: row["correct"] / row["samples"] for row in run.scores("final")}
        assert run.experiment.data.preprocess.standardise == learns
    assert (accuracy.get(0, 0.0) > 0.8) == learns


@pytest.mark.parametrize("scope", SCOPES)
def test_an_exported_model_prepares_its_samples_itself(scope: str, tmp_path: Path) -> None:
    with fedtailor.run(SCOPES[scope], folder=tmp_path / "run") as run:
        federation = run.federation()
        correct = {row["client"]: row["correct"] for row in run.scores("final")}
    assert (tmp_path / "run" / "preprocessing.json").is_file()
    samples = federation.samples
    for client in (1, 2):
        model = fedtailor.load_model(fedtailor.export_client(tmp_path / "run", client, tmp_path / f"model-{client}"))
        rows = federation.test[client]
        predicted = model.predict(samples.x[rows])
        truth = [samples.classes[label] for label in samples.y[rows]]
        assert sum(a == b for a, b in zip(predicted, truth, strict=True)) == correct[client]
        assert model.card["preprocessing"]["impute"] == SCOPES[scope]["data"]["preprocess"]["impute"]
        words = [
            [
                column.categories[int(v)] if column.categories and v == v else v
                for column, v in zip(samples.columns, row, strict=True)
            ]
            for row in samples.x[rows].tolist()
        ]
        assert model.predict(np.array(words, object)) == predicted
    model = fedtailor.load_model(fedtailor.export_global(tmp_path / "run", tmp_path / "global"))
    if scope == "client":
        with pytest.raises(UserError, match="export the model of a client"):
            model.predict(samples.x[:2])
    else:
        assert len(model.predict(samples.x[:2])) == 2


def test_a_resumed_run_checks_the_statistics_too(tmp_path: Path) -> None:
    with fedtailor.run(heart(), folder=tmp_path / "run") as run:
        before = run.federation().digest()
    other = build(experiment(heart(impute="mean", indicator=False)).data, 0)
    assert other.digest() != before


def test_a_recurrent_network_agrees_over_engines(two: Processes, tmp_path: Path) -> None:
    """FedRep trains the head alone: the features of the frozen recurrent body are computed once."""
    (tmp_path / "shakespeare").mkdir()
    text = "\n\n".join(f"ROLE {r}:\n{'ab' * 40 if r % 2 else 'abc' * 27}" for r in range(4))
    (tmp_path / "shakespeare" / "input.txt").write_text(text)
    settings = {
        "rounds": 2,
        "method": {"name": "fedrep"},
        "data": {
            "source": "shakespeare",
            "dir": str(tmp_path),
            "shakespeare": {"window": 5, "stride": 1, "min_characters": 50},
        },
        "model": {"arguments": {"hidden": 6}},
        "training": {"lr": 0.5, "epochs": 2},
        "devices": {"profiles": "uniform"},
    }
    with fedtailor.run(settings, folder=tmp_path / "inline", resources=Resources(engine=Inline())) as run:
        assert run.names == tuple(f"ROLE {r}" for r in range(4))
        assert run.summary().final.accuracy > 0.4
    fedtailor.run(settings, folder=tmp_path / "two", resources=Resources(engine=two)).close()
    assert_same(tmp_path / "inline", tmp_path / "two")
