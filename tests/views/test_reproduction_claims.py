"""The page of claims from made-up records, whose differences and intervals are derived by hand."""

from dataclasses import replace
from pathlib import Path

import pytest

from fedtailor.__main__ import main
from fedtailor.runs.reproduce import Record, make_plan, make_table, read_claims, read_records
from fedtailor.runs.reproduce.records import write_record
from fedtailor.version import RESULTS
from fedtailor.views.reproduction import page_text
from fedtailor.views.reproduction_claims import anchor, claims_text

ROOT = Path(__file__).parents[2]
BASE = """
rounds = 2
[data]
clients = 4
samples = 200
[compare]
seeds = [0, 1, 2]
methods = ["local", "fedavg", "fedprox"]
"""
DECLARED = """
title = "Made up"
[paper]
rounds = 3
[experiments.a]
base = "tiny.toml"
paper_seeds = { fedavg = [0, 1], others = [0] }
[experiments.b]
base = "tiny.toml"
set = { "training.lr" = 0.2 }
[tables.accuracy]
title = "Table 1: accuracy"
measure = "held.accuracy"
columns = ["a", "b"]
[tables.speed]
title = "Speed"
measure = "rounds to held.accuracy 99"
columns = ["a"]
[tables.block]
size = "paper"
title = "A block"
measure = "held.accuracy"
columns = ["a"]
[[claims]]
says = "FedAvg is ahead of Local"
paper = "+3 points"
headline = true
table = "accuracy"
row = "fedavg"
over = "local"
[[claims]]
says = "FedAvg is ahead of all"
headline = true
table = "accuracy"
row = "fedavg"
columns = ["a"]
[[claims]]
says = "FedAvg is faster"
headline = true
table = "speed"
row = "fedavg"
over = "local"
[[claims]]
says = "FedProx is ahead of FedAvg"
headline = true
table = "block"
row = "fedprox"
over = "fedavg"
[[claims]]
says = "It costs nothing"
paper = "46 %"
headline = true
page = "cost"
[[claims]]
says = "A detail"
table = "accuracy"
row = "local"
"""
MADE_UP = Record(
    key="", experiment="", method="", seed=0, results=RESULTS, settings={}, data="", policy=None, versions={},
    clients=4, seconds=1.0, passes=1.0, rounds={"cohort": [4, 4]}, clock={}, failed={}, metrics={}, scores={},
    rewards={},
)  # fmt: skip


def recipe_in(folder: Path, declared: str = DECLARED) -> Path:
    folder.mkdir(parents=True)
    (folder / "tiny.toml").write_text(BASE)
    (folder / "reproduce.toml").write_text(declared)
    return folder


def ended(recipe: Path, size: str, experiment: str, method: str, *accuracies: float) -> None:
    """Write the records of a method's first seeds, with accuracies in %."""
    steps = make_plan(recipe, size).steps[experiment][method]  # type: ignore[arg-type]
    for step, accuracy in zip(steps, accuracies, strict=False):
        metrics = {"held": {"round": [2], "accuracy": [accuracy / 100]}}
        facts = replace(MADE_UP, key=step.key, experiment=experiment, method=method, seed=step.seed, metrics=metrics)
        write_record(recipe, step, facts)


def lines(place: Path) -> dict[str, list[str]]:
    """The cells of each claim."""
    text = claims_text(read_claims(place / "recipes"), place / "docs" / "results")
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("| ")
    ]
    return {row[0]: row[1:] for row in rows if row[0] not in ("claim",) and not row[0].startswith("---")}


def test_every_main_claim_has_a_line_with_what_was_found_at_both_sizes(tmp_path: Path) -> None:
    """Half an interval of three differences that are 0.1 apart is 0.1 * 4.303 / sqrt(3) = 0.25; 0.2 apart: 0.50."""
    recipe = recipe_in(tmp_path / "recipes" / "tiny")
    ended(recipe, "laptop", "a", "local", 50.0, 52.0, 54.0)
    ended(recipe, "laptop", "a", "fedavg", 52.9, 55.0, 57.1)  # 2.9, 3.0, 3.1 points more
    ended(recipe, "laptop", "b", "local", 50.0, 50.0, 50.0)
    ended(recipe, "laptop", "b", "fedavg", 49.9, 50.1, 50.3)  # -0.1, 0.1, 0.3
    ended(recipe, "paper", "a", "local", 60.0)
    ended(recipe, "paper", "a", "fedavg", 64.0, 66.0)
    found = lines(tmp_path)
    assert list(found) == [
        "FedAvg is ahead of Local", "FedAvg is ahead of all", "FedAvg is faster", "FedProx is ahead of FedAvg",
        "It costs nothing",
    ]  # fmt: skip
    assert found["FedAvg is ahead of Local"] == [
        "+3 points",
        "a: +3.0 [+2.8, +3.2] points (3 seeds); b: +0.1 [-0.4, +0.6] points (3 seeds)",
        "holds: 1, level: 1 (of 2)",
        "a: +4.0 points (1 seed); 1 of 2 comparisons run",
        "not decidable at this size",
        "–",
    ]
    assert found["FedAvg is ahead of all"][1:3] == ["+3.0 [+2.8, +3.2] points (3 seeds); against 1 of 2 rows", "holds"]
    assert found["FedAvg is faster"][1:3] == ["no seed reached the target", "not decidable at this size"]
    assert found["It costs nothing"] == ["46 %", "no table tests it", "–", "no table tests it", "–", "–"]
    assert found["FedProx is ahead of FedAvg"][:5] == [
        "–",
        "no table tests it",
        "–",
        "not run at the paper's size",
        "–",
    ]


def test_without_records_of_this_version_nothing_is_claimed(tmp_path: Path) -> None:
    recipe = recipe_in(tmp_path / "recipes" / "tiny")
    ended(recipe, "laptop", "a", "local", 50.0, 50.0, 50.0)  # one side alone is no comparison
    for cells in list(lines(tmp_path).values())[:3]:
        assert cells[1:5] == ["not run at this version", "–", "not run at the paper's size", "–"]


def test_many_comparisons_are_summarised(tmp_path: Path) -> None:
    declared = DECLARED.replace('over = "local"', "each = true", 1)
    recipe = recipe_in(tmp_path / "recipes" / "tiny", declared)
    for experiment in ("a", "b"):
        ended(recipe, "laptop", experiment, "fedavg", 60.0, 61.0, 62.0)
        ended(recipe, "laptop", experiment, "local", 50.0, 51.0, 52.0)  # 10 less, with every seed
    ended(recipe, "laptop", "a", "fedprox", 65.5, 66.5)  # 5.5 more, but two seeds decide nothing
    assert lines(tmp_path)["FedAvg is ahead of Local"][1:3] == [
        "-5.5 to +10.0 points (2 to 3 seeds); 3 of 4 comparisons run",
        "holds: 2, not decidable at this size: 1 (of 3)",
    ]


def test_of_several_rows_the_best_counts_and_is_named(tmp_path: Path) -> None:
    """Local leads FedAvg in experiment a, level with FedProx; claims of being level hold there."""
    declared = DECLARED.replace('row = "fedavg"\nover = "local"', 'row = ["local", "fedavg"]\nlevel = true', 1)
    recipe = recipe_in(tmp_path / "recipes" / "tiny", declared)
    for method, first in (("local", 60.0), ("fedavg", 50.0), ("fedprox", 60.0)):
        ended(recipe, "laptop", "a", method, first, first + 1, first + 2)
    for method, first in (("local", 40.0), ("fedavg", 50.0), ("fedprox", 60.0)):
        ended(recipe, "laptop", "b", method, first, first + 1, first + 2)
    assert lines(tmp_path)["FedAvg is ahead of Local"][1:3] == [
        "a: +0.0 [+0.0, +0.0] points (3 seeds); b: -10.0 [-10.0, -10.0] points (3 seeds)",
        "holds: 1, does not: 1 (of 2)",
    ]
    plan, records = make_plan(recipe), read_records(recipe)
    page = page_text(plan, "tiny", {"accuracy": make_table(plan, "accuracy", records)}, records)
    assert "| FedAvg is ahead of Local | a: local " in page
    assert "| FedAvg is ahead of Local | b: fedavg " in page
    assert "A claim of being at least level also holds" in page


def test_links_lead_to_tables_of_this_version_and_name_earlier_pages(tmp_path: Path) -> None:
    recipe_in(tmp_path / "recipes" / "tiny")
    pages = tmp_path / "docs" / "results"
    pages.mkdir(parents=True)
    (pages / "tiny.md").write_text(f"results version {RESULTS + 1}")
    (pages / "tiny-paper.md").write_text(f"results version {RESULTS}")
    (pages / "cost.md").write_text("")
    found = lines(tmp_path)
    full = "[accuracy, paper's size](results/tiny-paper.md#table-1-accuracy)"
    assert found["FedAvg is ahead of Local"][-1] == f"[page of another version](results/tiny.md), {full}"
    assert found["It costs nothing"][-1] == "[cost](results/cost.md)"
    assert anchor("Fig. 4: beta = 0.6") == "fig-4-beta--06"


def test_what_was_not_run_at_the_papers_size_is_listed(tmp_path: Path) -> None:
    recipe = recipe_in(tmp_path / "recipes" / "tiny")
    ended(recipe, "paper", "a", "fedavg", 64.0, 66.0)
    text = claims_text(read_claims(tmp_path / "recipes"), tmp_path / "docs" / "results")
    part, none = text.split("Run in part at the paper's size:")[1], text.split("Not run at the paper's size:")
    assert "* A block (2 of 4 runs)" in part  # two of fedavg's seeds, one of local, one of fedprox
    assert len(none) == 1  # every table has a run of experiment a


def test_the_command_writes_the_page_beside_the_folder_of_pages(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = recipe_in(tmp_path / "recipes" / "tiny")
    out = tmp_path / "docs" / "results"
    assert main(["reproduce", str(recipe.parent), "--claims", "--out", str(out)]) == 0
    assert (tmp_path / "docs" / "claims.md").read_text() == claims_text(read_claims(recipe.parent), out)
    assert not out.exists()
    capsys.readouterr()
    assert main(["reproduce", str(recipe), "--claims"]) == 2
    assert "name the folder of all recipes" in capsys.readouterr().err
    assert main(["reproduce", str(recipe.parent), "accuracy", "--claims"]) == 2


def test_the_page_of_this_repository_is_what_the_command_writes() -> None:
    made = claims_text(read_claims(ROOT / "recipes"), ROOT / "docs" / "results")
    assert (ROOT / "docs" / "claims.md").read_text(encoding="utf-8") == made, (
        "write it again: fedtailor reproduce recipes --claims"
    )
