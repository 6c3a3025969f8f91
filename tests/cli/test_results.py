"""From a run to a model in Python, and a comparison from start to table."""

import csv
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest


def test_run_show_list_export_load(finished: Path, tmp_path: Path, environment: dict[str, str]) -> None:
    """The whole way in real processes, as a user goes it."""

    def fedtailor(*words: str) -> str:
        program = [sys.executable, "-m", "fedtailor", *words]
        return subprocess.run(program, cwd=tmp_path, check=True, capture_output=True, text=True, env=environment).stdout

    shutil.copytree(finished, tmp_path / "runs" / "done")
    assert {"curves.png", "report.md", "run.db", "experiment.toml"} <= {p.name for p in finished.iterdir()}
    shown = fedtailor("show", "runs/done", "--clients")
    assert "2 of 2 rounds, finished" in shown
    assert re.search(r"^ +3 ", shown, re.MULTILINE)  # the last client
    assert re.search(r"done +fedavg +0 +2/2 +finished +final [\d.]+ %", fedtailor("list"))
    load = fedtailor("export", "runs/done", "--client", "3").splitlines()[-2:]
    use = "import sys; print(model.card['client'], 'numpy' in sys.modules)"
    program = [sys.executable, "-c", "\n".join([*(line.strip() for line in load), use])]
    done = subprocess.run(program, cwd=tmp_path, check=True, capture_output=True, text=True, env=environment)
    assert done.stdout == "3 True\n"


def test_a_run_shows_what_was_evaluated_and_what_to_do_next(call, small: list[str]) -> None:
    done = call("run", *small, "--name", "one", "--method", "fedper", "--quiet")
    assert done.code == 0
    for word in ("received", "held", "final", "worst 10 %", "over samples", "fedtailor show runs/one", "curves.png"):
        assert word in done.out
    assert done.err == ""


def test_a_method_option_replaces_the_whole_table(call, tmp_path: Path, small: list[str]) -> None:
    (tmp_path / "e.toml").write_text('[method]\nname = "fedprox"\nmu = 0.5\n')
    done = call("run", "e.toml", *small, "--method", "fedper", "--json")
    assert done.document["method"] == {"name": "fedper"}


def test_options_are_settings(call, small: list[str], tmp_path: Path) -> None:
    done = call("run", *small, "--name", "7", "--seed", "5", "--set", "training.lr=0.2", "--data-dir", "here", "--json")
    assert (done.document["name"], done.document["seed"]) == ("7", 5)
    text = (tmp_path / "runs" / "7" / "experiment.toml").read_text()
    assert "lr = 0.2" in text
    assert 'dir = "here"' in text


def test_the_report_holds_the_table_the_picture_and_the_settings(finished: Path) -> None:
    text = (finished / "report.md").read_text()
    assert "| final" in text
    assert "](curves.png)" in text
    assert "rounds = 2" in text
    assert "- torch: " in text
    assert (finished / "curves.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "words",
    [
        ["run", "--name", "json"],
        ["compare", "--name", "json", "--methods", "local,fedavg"],
        ["resume", "FINISHED"],
        ["list", "FINISHED"],
        ["show", "FINISHED"],
        ["show", "FINISHED", "--clients"],
        ["methods"],
        ["methods", "fedprox"],
        ["models"],
        ["data", "list"],
        ["data", "show", "--set", "data.clients=4"],
        ["data", "get", "digits"],
        ["devices", "--set", "devices.profiles=tiers"],
        ["export", "FINISHED", "--client", "1"],
        ["export", "FINISHED", "--global"],
        ["draw", "FINISHED"],
        ["report", "FINISHED"],
    ],
    ids=" ".join,
)
def test_json_is_one_document_on_stdout(call, finished: Path, tmp_path: Path, small: list[str], words) -> None:
    copy = tmp_path / "done"
    if "FINISHED" in words:
        shutil.copytree(finished, copy)
    more = small if words[0] in ("run", "compare") else []
    done = call(*(str(copy) if word == "FINISHED" else word for word in words), *more, "--json")
    assert done.code == 0, done.err
    document, end = json.JSONDecoder().raw_decode(done.out)
    assert document
    assert done.out[end:].strip() == ""
    json.loads(done.out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))


def test_the_page_is_written_by_itself_and_by_command(call, finished: Path, tmp_path: Path) -> None:
    copy = tmp_path / "done"
    shutil.copytree(finished, copy)
    assert "look: done/report.html" in call("show", "done").out
    (copy / "report.html").unlink()
    assert "look: fedtailor report done" in call("show", "done").out
    done = call("report", "done", "--out", "mine.html")
    assert (done.code, done.out) == (0, "mine.html\n")
    assert (tmp_path / "mine.html").read_text().startswith("<!doctype html>")
    refused = call("report", "done", "--out", "nowhere/mine.html")
    assert refused.code == 2
    assert "nowhere" in refused.err


def test_a_method_of_the_file_is_chosen_by_its_label(call, tmp_path: Path, small: list[str]) -> None:
    file = tmp_path / "labels.toml"
    file.write_text('[compare]\nmethods = ["local", {label = "strong", name = "fedprox", mu = 0.9}]\n')
    done = call("compare", file, *small, "--methods", "fedavg,strong", "--name", "chosen")
    assert done.code == 0, done.err
    rows = csv.DictReader((tmp_path / "runs" / "chosen" / "table.csv").read_text().splitlines())
    assert [row["method"] for row in rows] == ["fedavg", "strong"]
    assert "mu = 0.9" in (tmp_path / "runs" / "chosen" / "strong-s0" / "experiment.toml").read_text()


def test_a_comparison_is_written_for_every_reader_and_resumes(call, tmp_path: Path, small: list[str]) -> None:
    words = ["compare", *small, "--name", "cmp", "--methods", "local,fedavg", "--seeds", "0,1"]
    first = call(*words)
    assert first.code == 0, first.err
    folder = tmp_path / "runs" / "cmp"
    assert str(folder.relative_to(tmp_path) / "curves.png") in first.out

    rows = list(csv.DictReader((folder / "table.csv").read_text().splitlines()))
    assert [row["method"] for row in rows] == ["local", "fedavg"]
    assert 0 <= float(rows[0]["final"]) <= 1
    lines = [line for line in (folder / "table.md").read_text().splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in lines}) == len({len(line) for line in lines}) == 1
    latex = (folder / "table.tex").read_text()
    body = latex.partition("\\midrule\n")[2].partition("\\bottomrule")[0].splitlines()
    assert [line.count(" & ") for line in body] == [latex.partition("{tabular}{")[2].index("}") - 1] * 2
    assert "±" not in latex.partition("\\begin")[2]

    stamps = {path: path.stat().st_mtime_ns for path in folder.glob("*/experiment.toml")}
    numbers = (folder / "table.csv").read_text()
    again = call(*words)
    assert "not run again: local-s0, fedavg-s0, local-s1, fedavg-s1" in again.err
    assert "starts" not in again.err
    assert (folder / "table.csv").read_text() == numbers  # with the same seconds: nothing ran
    assert {path: path.stat().st_mtime_ns for path in folder.glob("*/experiment.toml")} == stamps
    assert call("resume", folder, "--quiet").out == again.out.replace("runs/cmp", str(folder))
    assert "only a pre-training has episodes" in call("resume", folder, "--episodes", "3").err
    assert "local" in call("show", folder).out


def test_a_damaged_run_is_a_line_of_the_list(call, finished: Path, tmp_path: Path) -> None:
    for name in ("good", "bad"):
        shutil.copytree(finished, tmp_path / "runs" / name)
    (tmp_path / "runs" / "bad" / "run.db").write_bytes(b"garbage" * 10_000)
    done = call("list")
    assert done.code == 0
    assert re.search(r"good .* finished", done.out)
    assert re.search(r"bad .* damaged", done.out)
    assert [line["status"] for line in call("list", "--json").document] == ["damaged", "finished"]


def test_a_method_card_tells_settings_and_when_they_switch_it_off(call) -> None:
    card = call("methods", "fedprox").out
    assert re.search(r"mu +0.1 +number ≥ 0 and ≤ 1000", card)
    assert "note: mu = 0 switches the proximal term off" in card


def test_devices_are_listed_with_what_an_epoch_takes(call) -> None:
    words = ["devices", "--set", "data.clients=5", "--set", "devices.speed=0.1"]
    document = call(*words, "--json").document
    for row in document["devices"]:
        assert row["epoch_seconds"] == 3 * document["flops"] * row["samples"] / (row["speed"] * 1e9)
    assert sorted(row["speed"] for row in document["devices"])[::4] == [0.01, 0.1]
    shown = call(*words).out
    assert "5 clients; auto:" in shown
    assert len(re.findall(r"^ +\d .*▇ *$", shown, re.MULTILINE)) == 5


def test_a_run_on_devices_tells_its_time(call, small: list[str]) -> None:
    done = call("run", *small, "--name", "timed", "--set", "devices.deadline=60", "--quiet")
    assert re.search(r"on the clients' devices .* straggling latency .* idle, 0 late, 0 dropped out", done.out)
    assert call("show", "runs/timed", "--json").document["clock"]["seconds"] > 0


def test_the_partition_is_drawn(call, tmp_path: Path) -> None:
    done = call("data", "show", "--set", "data.clients=5", "--out", "p.svg")
    assert "5 clients, 1,797 samples, 10 classes" in done.out
    assert "<svg" in (tmp_path / "p.svg").read_text()[:1000]
