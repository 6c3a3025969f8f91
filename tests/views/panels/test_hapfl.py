from fedtailor.data.statistics import table
from fedtailor.runs import Run
from fedtailor.views.panels import about, hapfl, panels
from tests.views.panels.conftest import Made


def test_shown_epochs_are_the_work_that_clients_did(made: Made) -> None:
    """A client that trains for tau epochs sees tau times its samples."""
    with Run(made("hapfl")) as run:
        epochs = hapfl.allocated(run, run.decisions())[hapfl.INTENSITY]
        sizes = [row["train"] for row in table(run.federation())]
        tasks = run.tasks()
    assert len({tuple(sorted(row.values())) for row in epochs.values()}) > 1  # not the same for all
    assert [row["samples"] for row in tasks] == [epochs[r["client"]][r["round"]] * sizes[r["client"]] for r in tasks]


def test_shown_sizes_of_the_last_round_are_those_of_the_timeline(made: Made) -> None:
    with Run(made("hapfl")) as run:
        found = hapfl.allocated(run, run.decisions())[hapfl.SIZE]
        latest = run.server_state("timeline")["timeline"]["latest"]
        shown = {panel["title"]: panel for panel in panels(run)}
    names = ["small", "large"]
    assert {client: names[int(row[3])] for client, row in found.items()} == latest["sizes"]
    counts = {one["label"]: one["y"][-1] for one in shown["Clients of every size"]["series"]}
    assert counts == {name: list(latest["sizes"].values()).count(name) for name in names}
    bars = shown["Assessment and training"]["frames"][1]["rows"]
    assert [bar["note"] for bar in bars] == [f"{latest['epochs'][k]} epochs" for k in latest["seconds"]]
    assert {bar["parts"][1][0] for bar in bars} == set(latest["sizes"].values())
    begins = {bar["parts"][1][1] for bar in bars}
    assert begins == {max(latest["seconds"].values())}  # training begins when the slowest is assessed


def test_a_client_is_told_its_size_and_its_rank(made: Made) -> None:
    with Run(made("hapfl")) as run:
        latest = run.server_state("timeline")["timeline"]["latest"]
        slowest = list(latest["seconds"])[-1]
        (said,) = about(run, slowest)
    assert f"size {latest['sizes'][slowest]} for {latest['epochs'][slowest]} epochs" in said
    assert "number 6 of 6" in said
