"""A comparison that an earlier version began."""

from pathlib import Path

import fedtailor
from fedtailor.runs.folders import PLAN


def test_a_plan_without_a_later_setting_resumes(tmp_path: Path) -> None:
    settings = {
        "rounds": 1,
        "data": {"clients": 2, "samples": 80},
        "engine": {"kind": "inline"},
        "compare": {"methods": ["local"]},
    }
    fedtailor.compare(settings, folder=tmp_path / "both")
    plan = tmp_path / "both" / PLAN
    lines = plan.read_text().splitlines()
    kept = [line.replace('model = "final"', 'metric = "final"') for line in lines if not line.startswith("together")]
    assert len(kept) == len(lines) - 2  # in training and in compare
    assert sum(line.startswith("metric") for line in kept) == 1  # as compare.model was called
    plan.write_text("\n".join(kept))
    fedtailor.compare(settings, folder=tmp_path / "both")
