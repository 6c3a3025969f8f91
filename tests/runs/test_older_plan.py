"""A comparison that an earlier version began."""

from pathlib import Path

import fedtailor
from fedtailor.runs.comparing import PLAN


def test_a_plan_without_a_setting_that_came_later_goes_on(tmp_path: Path) -> None:
    settings = {
        "rounds": 1,
        "data": {"clients": 2, "samples": 80},
        "engine": {"kind": "inline"},
        "compare": {"methods": ["local"]},
    }
    fedtailor.compare(settings, folder=tmp_path / "both")
    plan = tmp_path / "both" / PLAN
    lines = plan.read_text().splitlines()
    kept = [line for line in lines if not line.startswith("together")]
    assert len(kept) == len(lines) - 1
    plan.write_text("\n".join(kept))
    fedtailor.compare(settings, folder=tmp_path / "both")
