"""A small reproduction from its declaration to its pages: digits, three methods, three seeds, two rounds."""

import json
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

import fedtailor
from fedtailor.__main__ import main
from fedtailor.runs import Run
from fedtailor.runs.reproduce import check, execution, make_plan, plan, read_records, records, run_missing, todo
from fedtailor.version import RESULTS
from fedtailor.views.reproduction_progress import Overall
from tests.support.waiting import wait_until

BASE = """
name = "tiny"
rounds = 2
[data]
clients = 4
samples = 200
[training]
epochs = 1
[engine]
kind = "inline"
[compare]
seeds = [0, 1, 2]
methods = ["local", "fedavg", { name = "fedprox", mu = 0.1 }]
"""

DECLARED = """
title = "A tiny reproduction"
about = "For tests."

[paper]
rounds = 3

[experiments."{base}"]
base = "tiny.toml"

[tables.accuracy]
title = "Accuracy"
experiment = "tiny"
columns = ["final.accuracy", "held.pooled", { title = "rounds", measure = "rounds to held.pooled of fedavg" }]
lead = ["fedavg"]
paper = { fedavg = [91.5, nan, 2] }
picture = "curves"
curve = "held.accuracy"

[tables.cost]
title = "Cost"
experiment = "tiny"
columns = ["bytes", { title = "to local", measure = "steps", show = "change", against = { method = "local" } }]
picture = "bars"

[[claims]]
says = "FedAvg is ahead"
paper = "+3 points"
table = "accuracy"
row = "fedavg"
columns = ["final.accuracy"]
"""


def recipe_in(folder: Path, declared: str = DECLARED) -> Path:
    folder.mkdir(parents=True)
    (folder / "tiny.toml").write_text(BASE)
    (folder / "reproduce.toml").write_text(declared)
    return folder


def reproduce(recipe: Path, place: Path, *more: str) -> int:
    return main(
        ["reproduce", str(recipe), *more, "--runs", str(place / "runs"), "--out", str(place / "pages"), "--quiet"]
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a recipe that has been reproduced; only to be looked at, or copied."""
    place = tmp_path_factory.mktemp("made")
    assert reproduce(recipe_in(place / "tiny"), place) == 0
    return place


@pytest.fixture
def copy(made: Path, tmp_path: Path) -> Path:
    """The same recipe with its records, without its runs."""
    shutil.copytree(made / "tiny", tmp_path / "tiny")
    return tmp_path


def missing(recipe: Path, place: Path, size: str = "laptop") -> list[str]:
    made = make_plan(recipe, size)  # type: ignore[arg-type]
    return [f"{step.method}-{step.seed}" for step in todo(made, made.declaration.tables, place / "runs").missing]


def test_every_run_leaves_a_small_record_with_exact_numbers(made: Path) -> None:
    found = read_records(made / "tiny")
    assert len(found) == 9
    for step in (step for steps in make_plan(made / "tiny").steps["tiny"].values() for step in steps):
        record = found[step.key]
        with Run(plan.run_folder(made / "runs", made / "tiny", step)) as run:
            assert run.finished
            assert record.metrics["final"]["accuracy"] == [run.metrics("final")[-1]["accuracy"]]
            assert record.metrics["held"]["pooled"] == [row["pooled"] for row in run.metrics("held")]
            assert record.scores["final"]["correct"] == [row["correct"] for row in run.scores("final")]
            assert record.rounds["bytes_up"] == [row["bytes_up"] for row in run.rounds()]
            assert record.data == run.data_digest
    for file in (made / "tiny" / "records").iterdir():
        assert file.stat().st_size < 20_000
        assert str(made) not in file.read_text()  # no path of the machine


def test_the_page_says_how_it_was_made(made: Path) -> None:
    text = (made / "pages" / "tiny.md").read_text()
    assert "Written by `fedtailor reproduce recipes/tiny`" in text
    assert f"seeds 0, 1, 2, results version {RESULTS}; the rounds of 9 runs took" in text
    assert "torch 2" in text
    assert "| paper: fedavg" in text
    assert "| FedAvg is ahead " in text
    assert "![Accuracy](tiny/accuracy.png)" in text
    assert str(made) not in text
    pages = {path.name for path in (made / "pages" / "tiny").iterdir()}
    assert pages == {f"{name}.{ending}" for name in ("accuracy", "cost") for ending in ("csv", "tex", "png")}
    lines = (made / "pages" / "tiny" / "accuracy.csv").read_text().splitlines()
    record = next(r for r in read_records(made / "tiny").values() if (r.method, r.seed) == ("fedavg", 1))
    assert f"fedavg,final.accuracy,final.accuracy,%,1,{100 * record.metrics['final']['accuracy'][-1]!r}" in lines


def test_the_same_command_again_runs_nothing_and_writes_the_same(
    made: Path, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(execution, "run", None)
    assert reproduce(copy / "tiny", copy) == 0
    for page in ("tiny.md", "tiny/accuracy.csv", "tiny/accuracy.tex", "tiny/cost.csv"):
        assert (copy / "pages" / page).read_bytes() == (made / "pages" / page).read_bytes()


def test_tables_come_from_records_alone(made: Path, copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fedtailor.runs.resources, "build", None)  # no data
    assert reproduce(copy / "tiny", copy, "--from-records") == 0
    assert (copy / "pages" / "tiny.md").read_bytes() == (made / "pages" / "tiny.md").read_bytes()


def test_a_changed_setting_reruns_only_what_it_changes(copy: Path) -> None:
    assert missing(copy / "tiny", copy) == []
    (copy / "tiny" / "tiny.toml").write_text(BASE.replace("mu = 0.1", "mu = 0.2"))
    assert missing(copy / "tiny", copy) == ["fedprox-0", "fedprox-1", "fedprox-2"]
    assert reproduce(copy / "tiny", copy) == 0
    assert missing(copy / "tiny", copy) == []
    assert len(list((copy / "runs" / "reproduce-tiny").glob("tiny-*"))) == 3


def test_where_and_how_fast_it_runs_changes_no_key(copy: Path) -> None:
    (copy / "tiny" / "tiny.toml").write_text(BASE.replace('kind = "inline"', 'kind = "processes"\nworkers = 2'))
    assert missing(copy / "tiny", copy) == []


def test_another_results_version_reruns_everything(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (plan, records):
        monkeypatch.setattr(module, "RESULTS", RESULTS + 1)
    assert len(missing(copy / "tiny", copy)) == 9


def test_other_data_rerun_what_was_made_with_them(copy: Path) -> None:
    file = next((copy / "tiny" / "records").glob("tiny-local-s1-*.json"))
    digest = json.loads(file.read_text())["data"]
    file.write_text(file.read_text().replace(digest, "0" * 32))
    assert missing(copy / "tiny", copy) == ["local-1"]


def test_the_size_of_the_paper_has_runs_and_a_page_of_its_own(copy: Path) -> None:
    assert len(missing(copy / "tiny", copy, "paper")) == 9
    assert reproduce(copy / "tiny", copy, "cost", "--size", "paper") == 0
    assert f"results version {RESULTS}" in (copy / "pages" / "tiny-paper.md").read_text()
    assert len(read_records(copy / "tiny")) == 18


def test_methods_may_have_seeds_of_their_own(copy: Path) -> None:
    by_method = 'base = "tiny.toml"\npaper_seeds = { fedavg = [0, 1], others = [5] }'
    (copy / "tiny" / "reproduce.toml").write_text(DECLARED.replace('base = "tiny.toml"', by_method))
    assert missing(copy / "tiny", copy) == []  # the laptop's seeds stay
    assert missing(copy / "tiny", copy, "paper") == ["fedavg-0", "fedavg-1", "local-5", "fedprox-5"]
    everywhere = 'base = "tiny.toml"\nseeds = { fedavg = [0, 7] }'  # the others have those of the base file
    (copy / "tiny" / "reproduce.toml").write_text(DECLARED.replace('base = "tiny.toml"', everywhere))
    assert missing(copy / "tiny", copy) == ["fedavg-7"]


def test_a_table_may_belong_to_one_size(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    declared = DECLARED.replace("[tables.cost]", '[tables.cost]\nsize = "paper"')
    (copy / "tiny" / "reproduce.toml").write_text(declared)
    assert list(make_plan(copy / "tiny").declaration.tables) == ["accuracy"]
    assert list(make_plan(copy / "tiny", "paper").declaration.tables) == ["accuracy", "cost"]
    assert reproduce(copy / "tiny", copy, "cost", "--dry-run") == 2
    assert "unknown table 'cost'" in capsys.readouterr().err


def test_a_dry_run_lists_and_estimates_and_writes_nothing(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    next((copy / "tiny" / "records").glob("tiny-local-s1-*.json")).unlink()
    before = sorted(copy.rglob("*"))
    assert reproduce(copy / "tiny", copy, "--dry-run", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert [(run["method"], run["seed"]) for run in told["runs"]] == [("local", 1)]
    others = [r.seconds for r in read_records(copy / "tiny").values() if r.method == "local"]
    assert told["seconds"] == pytest.approx(sum(others) / 2)
    assert sorted(copy.rglob("*")) == before


def test_a_killed_reproduction_resumes_with_the_same_result(made: Path, tmp_path: Path) -> None:
    """kill -9 in a run: finished runs stay, and the killed run resumes from its last complete round."""
    recipe = recipe_in(tmp_path / "tiny")
    words = ["reproduce", str(recipe), "--runs", str(tmp_path / "runs"), "--out", str(tmp_path / "pages"), "--quiet"]
    process = subprocess.Popen([sys.executable, "-m", "fedtailor", *words])
    wait_until(lambda: _rounds(tmp_path / "runs") >= 5 or process.poll() is not None, "the third run")
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert main(words) == 0
    before, after = read_records(made / "tiny"), read_records(recipe)
    assert before.keys() == after.keys()
    for key, record in after.items():
        assert record.metrics == before[key].metrics
        assert record.scores == before[key].scores
        assert record.rounds["steps"] == before[key].rounds["steps"]


HOLDER = """
import sys
from pathlib import Path
from fedtailor.runs.reproduce import make_plan, todo
from fedtailor.runs.reproduce.locks import Locks

recipe, runs = map(Path, sys.argv[1:3])
step = todo(make_plan(recipe, "laptop", runs), ["accuracy"], runs).missing[0]
with Locks(runs / f"reproduce-{recipe.name}") as locks:
    print(locks.take(step), flush=True)
    sys.stdin.read()
"""


@pytest.mark.parametrize("declared", ["runs", "policy"])
def test_a_run_that_another_process_has_taken_is_left_to_it(
    declared: str, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All others are carried out but those that need its policy; then the command waits for it."""
    recipe, runs = recipe_in(tmp_path / "tiny", DECLARED if declared == "runs" else POLICY), tmp_path / "runs"
    (runs / "reproduce-tiny").mkdir(parents=True)
    words = [sys.executable, "-c", HOLDER, str(recipe), str(runs)]
    other = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None
    assert other.stdout.readline() == "True\n"
    made_first: list[int] = []
    shown = Overall()

    def pause(seconds: float) -> None:
        made_first.append(len(read_records(recipe)))
        assert shown.text().endswith("in other processes, which this one waits for")
        other.communicate("")  # it ends, which releases its run

    monkeypatch.setattr(execution.time, "sleep", pause)
    planned = make_plan(recipe, "laptop", runs)
    run_missing(planned, todo(planned, ["accuracy"], runs), runs, shown)
    assert made_first == [8 if declared == "runs" else 0]
    assert len(read_records(recipe)) == (9 if declared == "runs" else 2)


def test_two_commands_at_once_make_the_same_pages(made: Path, tmp_path: Path) -> None:
    recipe = recipe_in(tmp_path / "tiny")
    words = ["reproduce", str(recipe), "--runs", str(tmp_path / "runs"), "--out", str(tmp_path / "pages"), "--quiet"]
    both = [subprocess.Popen([sys.executable, "-m", "fedtailor", *words]) for _ in range(2)]
    assert [process.wait() for process in both] == [0, 0]
    before, after = read_records(made / "tiny"), read_records(recipe)
    assert {key: record.scores for key, record in after.items()} == {k: r.scores for k, r in before.items()}


def _rounds(runs: Path) -> int:
    """Complete rounds in all databases below a folder."""
    count = 0
    for file in runs.glob("reproduce-tiny/tiny-*/run.db"):
        try:
            db = sqlite3.connect(f"file:{file}?mode=ro", uri=True)
            count += db.execute("SELECT COUNT(*) FROM rounds").fetchone()[0]
            db.close()
        except sqlite3.OperationalError:
            continue
    return count


POLICY = """
title = "With a policy"
[methods]
deployed = { name = "bwa", agents.adjustment = { network = "per-slot" }, policy = "@agent-{base}" }
[experiments."agent-{base}"]
base = "tiny.toml"
pretrain = true
seeds = [100]
methods = [{ label = "learns", name = "bwa", agents.adjustment = { network = "per-slot" } }]
set = { "pretrain.episodes" = 2 }
[experiments.tested]
base = "tiny.toml"
methods = ["deployed"]
seeds = [0]
[tables.accuracy]
title = "Accuracy"
experiment = "tested"
columns = ["global.pooled", "reward.adjustment"]
[tables.learning]
title = "Learning"
rows = [{ experiment = "agent-tiny" }]
columns = ["reward.adjustment first"]
"""


def test_a_policy_is_trained_before_it_is_used_and_only_if_it_is_needed(tmp_path: Path) -> None:
    recipe = recipe_in(tmp_path / "policy", POLICY)
    assert missing(recipe, tmp_path) == ["learns-100", "deployed-0"]
    assert reproduce(recipe, tmp_path, "accuracy") == 0
    agent, run = sorted(read_records(recipe).values(), key=lambda record: record.experiment)
    assert agent.policy == run.policy is not None
    assert run.settings["method"]["policy"] == "@agent-tiny"
    assert len(agent.rewards["adjustment"]) == 2  # episodes
    shutil.rmtree(tmp_path / "runs")
    assert missing(recipe, tmp_path) == []  # all have records, so nobody needs the policy itself
    changed = POLICY.replace("seeds = [0]", "seeds = [0, 1]")
    (recipe / "reproduce.toml").write_text(changed)
    assert missing(recipe, tmp_path) == ["learns-100", "deployed-1"]
    (recipe / "reproduce.toml").write_text(POLICY.replace('episodes" = 2', 'episodes" = 3'))
    assert missing(recipe, tmp_path) == ["learns-100", "deployed-0"]


GIVEN = """
import torch
from fedtailor.methods.adjustment import ADJUSTMENT

def batches(settings, size):
    return {ADJUSTMENT: lambda server, question: torch.tensor([float(size)])}
"""


def test_a_function_of_the_recipe_takes_the_agents_decisions(tmp_path: Path) -> None:
    declared = """
title = "Given"
[experiments."batch-{given.size}"]
base = "tiny.toml"
methods = [{ name = "adaptive-b", agents.adjustment = { learn = "never" } }]
seeds = [0]
deciders = "given.py:batches"
vary = { "given.size" = [4, 64] }
[tables.steps]
title = "Steps"
method = "adaptive-b"
measure = "steps"
rows = [{ title = "steps" }]
columns = ["batch-4", "batch-64"]
"""
    recipe = recipe_in(tmp_path / "given", declared)
    (recipe / "given.py").write_text(GIVEN)
    assert reproduce(recipe, tmp_path) == 0
    small, large = sorted(read_records(recipe).values(), key=lambda record: -sum(record.rounds["steps"]))
    assert (small.experiment, large.experiment) == ("batch-4", "batch-64")
    assert sum(small.rounds["steps"]) > 4 * sum(large.rounds["steps"])
    (recipe / "given.py").write_text(GIVEN + "# another\n")
    assert len(missing(recipe, tmp_path)) == 2


@pytest.mark.parametrize(
    ("declared", "words", "said"),
    [
        (DECLARED, ["table-9"], "unknown table 'table-9'"),
        (DECLARED + "colour = 3", [], "claims.0.colour is not known here"),
        (DECLARED.replace('"tiny.toml"', '"none.toml"'), [], "none.toml does not exist"),
        (DECLARED.replace("held.pooled of fedavg", "held.pooled"), [], "name the target"),
        (DECLARED.replace('"bytes",', '"bites",'), [], "measure 'bites' is not known"),
        (DECLARED.replace('row = "fedavg"', 'row = "fedvag"'), [], "'fedvag' is no row of accuracy"),
        (DECLARED.replace('row = "fedavg"', ""), [], "claim 1: name the row of accuracy"),
        (DECLARED.replace('table = "accuracy"', ""), [], "claim 1: name its table; only a headline may have none"),
        (
            DECLARED.replace('base = "tiny.toml"', 'base = "tiny.toml"\nseeds = { fedvag = [0] }'),
            [],
            "experiments.{base}, seeds: unknown method 'fedvag'",
        ),
        (DECLARED.replace("[91.5, nan, 2]", "[91.5]"), [], "has 1 numbers: the table has 3 columns"),
        (DECLARED.replace('"tiny.toml"', '"tiny.toml"\nmethods = ["fedvag"]'), [], "did you mean 'fedavg'"),
        (DECLARED.replace('base = "tiny.toml"', 'base = "tiny.toml"\nset = { "training.lr" = -1 }'), [], "training.lr"),
        (DECLARED.replace('experiment = "tiny"', 'experiment = "tinny"', 1), [], "unknown experiment 'tinny'"),
        (POLICY.replace("@agent-{base}", "@agent"), [], "unknown pre-training 'agent'"),
        ("title = ", [], "is not valid TOML"),
    ],
)  # fmt: skip
def test_bad_input_gets_one_sentence_and_writes_nothing(
    tmp_path: Path, declared: str, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = recipe_in(tmp_path / "tiny", declared)
    before = sorted(tmp_path.rglob("*"))
    assert reproduce(recipe, tmp_path, *words) == 2
    told = capsys.readouterr().err
    assert said in told
    assert len(told.splitlines()) == 1
    assert sorted(tmp_path.rglob("*")) == before


def test_a_folder_without_a_declaration_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert reproduce(tmp_path, tmp_path) == 2
    assert "it has no reproduce.toml" in capsys.readouterr().err


def test_a_damaged_record_is_named(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = next((copy / "tiny" / "records").glob("tiny-local-s1-*.json"))
    file.write_text("{")
    assert reproduce(copy / "tiny", copy) == 2
    assert f"{file.name} is not a record" in capsys.readouterr().err


def test_without_any_record_there_is_nothing_to_make_pages_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert reproduce(recipe_in(tmp_path / "tiny"), tmp_path, "--from-records") == 2
    assert "has no records of accuracy, cost" in capsys.readouterr().err


COST_OF_MORE = (
    DECLARED.replace('experiment = "tiny"\ncolumns = ["bytes"', 'experiment = "more"\ncolumns = ["bytes"')
    + '[experiments.more]\nbase = "tiny.toml"\nset = { rounds = 1 }\n'
)


def test_a_page_whose_runs_are_gone_stays_as_it_is(
    made: Path, copy: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It still says by which version it was made; no file beside it changes either."""
    shutil.copytree(made / "pages", copy / "pages")
    before = {file: file.read_bytes() for file in (copy / "pages").rglob("*.*")}
    for module in (plan, records):
        monkeypatch.setattr(module, "RESULTS", RESULTS + 1)
    assert reproduce(copy / "tiny", copy, "--from-records") == 2
    assert "its pages stay as they are" in capsys.readouterr().err
    (copy / "tiny" / "reproduce.toml").write_text(COST_OF_MORE)
    assert reproduce(copy / "tiny", copy, "cost") == 0  # with runs, of one of its two tables
    assert {file: file.read_bytes() for file in (copy / "pages").rglob("*.*")} == before
    sentence = "tiny.md stays as it is: there is no record of accuracy; `fedtailor reproduce recipes/tiny accuracy`"
    assert sentence in capsys.readouterr().out.replace("\n", " ")
    assert f"results version {RESULTS};" in (copy / "pages" / "tiny.md").read_text()
    assert reproduce(copy / "tiny", copy, "--from-records", "--json") == 0
    assert sentence in json.loads(capsys.readouterr().out)["kept"][0]
    assert reproduce(copy / "tiny", copy) == 0  # now with all runs
    assert "## Cost\n" in (copy / "pages" / "tiny.md").read_text()
    assert (copy / "pages" / "tiny.md").read_bytes() != before[copy / "pages" / "tiny.md"]


def test_a_page_without_any_record_is_not_begun(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    declared = COST_OF_MORE.replace("[tables.cost]", '[tables.cost]\npage = "other"')
    (copy / "tiny" / "reproduce.toml").write_text(declared)
    assert reproduce(copy / "tiny", copy, "--from-records") == 0
    assert "other.md is not written: there is no record of cost" in capsys.readouterr().out.replace("\n", " ")
    assert [file.name for file in (copy / "pages").iterdir() if file.suffix == ".md"] == ["tiny.md"]


def test_a_page_that_shows_only_what_has_records_is_written_again(copy: Path) -> None:
    """A table that was never made does not hold the page."""
    (copy / "tiny" / "reproduce.toml").write_text(COST_OF_MORE)
    for _ in range(2):
        assert reproduce(copy / "tiny", copy, "--from-records") == 0
        text = (copy / "pages" / "tiny.md").read_text()
        assert "Not made yet: `fedtailor reproduce recipes/tiny cost`." in text
        (copy / "pages" / "tiny.md").write_text(text.replace("| fedavg", "| changed"))
    assert "| fedavg" in text


RECIPES = sorted(path.parent for path in (Path(__file__).parents[2] / "recipes").glob("*/reproduce.toml"))


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: path.name)
@pytest.mark.parametrize("size", ["laptop", "paper"])
def test_the_recipes_of_this_repository_can_be_planned(recipe: Path, size: str) -> None:
    planned = make_plan(recipe, size)  # type: ignore[arg-type]
    check(planned, planned.declaration.tables)


def test_the_committed_records_are_those_of_their_recipes() -> None:
    """A record whose run nobody declares any more is to be deleted."""
    for recipe in RECIPES:
        keys = {
            step.key
            for size in ("laptop", "paper")
            for methods in make_plan(recipe, size).steps.values()  # type: ignore[arg-type]
            for steps in methods.values()
            for step in steps
        }
        assert read_records(recipe).keys() <= keys, recipe.name


def test_no_record_of_another_results_version_lies_beside_that_of_its_run() -> None:
    """It can make no table any more."""
    for recipe in RECIPES:
        found = [(file, json.loads(file.read_text())) for file in sorted((recipe / "records").glob("*.json"))]
        run = {file: (one["experiment"], one["method"], one["seed"]) for file, one in found}
        present = {run[file] for file, one in found if one["results"] == RESULTS}
        assert not [file.name for file, one in found if one["results"] != RESULTS and run[file] in present], recipe.name
