"""The progress of downloads: lines in a log, bars in a terminal, nothing when quiet."""

import io

import pytest
from rich.console import Console

from fedtailor.views import downloads
from fedtailor.views.downloads import downloading


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What is written to a console that stands for stderr."""
    text = io.StringIO()
    monkeypatch.setattr(downloads, "messages", lambda: Console(file=text, force_terminal=True, width=100))
    return text


def report_two_files(quiet: bool = False) -> None:
    with downloading(quiet) as report:
        report("a[b].gz", 0, 2000)
        report("a[b].gz", 2000, 2000)
        report("labels", 5, None)


def in_a_terminal(monkeypatch: pytest.MonkeyPatch, yes: bool) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: yes, raising=False)


def test_a_log_has_a_line_per_file(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    in_a_terminal(monkeypatch, False)
    text = io.StringIO()
    monkeypatch.setattr(downloads, "messages", lambda: Console(file=text, markup=False, highlight=False))
    report_two_files()
    assert text.getvalue().splitlines() == ["downloading a[b].gz", "downloading labels"]


def test_nothing_is_said_when_quiet(monkeypatch: pytest.MonkeyPatch, shown: io.StringIO) -> None:
    for terminal in (False, True):
        in_a_terminal(monkeypatch, terminal)
        report_two_files(quiet=True)
    assert shown.getvalue() == ""


def test_a_terminal_has_a_bar_per_file_and_its_bytes(monkeypatch: pytest.MonkeyPatch, shown: io.StringIO) -> None:
    in_a_terminal(monkeypatch, True)
    report_two_files()
    assert "a[b].gz" in shown.getvalue()
    assert "2.0/2.0 kB" in shown.getvalue()
    assert "labels" in shown.getvalue()
