"""The pictures of docs/dashboard.md: ``python -m tests.support.screenshots [NAME ...]`` makes them in a real browser.

Look at each of them before you commit it.
"""

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fedtailor
from fedtailor.views.html.report import write_page
from tests.support.browser import chromium
from tests.views.dashboard.test_scale import served

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
SIZE = {"width": 1100, "height": 760}
SMALL: dict[str, Any] = {
    "rounds": 20,
    "data": {"clients": 12, "samples": 1200, "partition": {"kind": "dirichlet", "alpha": 0.3}},
    "model": {"name": "mlp"},
    "training": {"epochs": 1, "lr": 0.05},
    "engine": {"kind": "inline"},
}
DEVICES = {"speed": 0.001, "profiles": {"kind": "uniform", "spread": 10}}
METHODS: dict[str, dict[str, Any]] = {
    "pfedrlla": {"participation": {"ratio": 0.75, "dropout": 0.05}},
    "fedalp": {"data": {"clients": 20, "partition": {"kind": "one-label", "train": 40, "test": 10}}},
    "fedah": {},
    "hapfl": {
        "method": {"name": "hapfl", "sizes": ["small", "large"]},
        "devices": DEVICES,
        "training": {"epochs": 3, "lr": 0.05},
        "rounds": 8,
    },
}


def main(names: list[str]) -> None:
    with tempfile.TemporaryDirectory() as place, chromium() as browser:
        root = Path(place) / "runs"
        for name, more in METHODS.items():
            settings = {**SMALL, "name": name, "method": {"name": name}, **more}
            fedtailor.run(settings, folder=root / name, callbacks=()).close()
        methods = ["fedper", "local", "fedavg"]
        fedtailor.compare(
            {**SMALL, "name": "three"}, methods=methods, seeds=[0, 1, 2], folder=root / "three", callbacks=()
        )
        report = write_page(fedtailor.Comparison(root / "three"), Path(place) / "report.html")
        with served(root, control=True) as server:
            page = browser.new_context(viewport=SIZE).new_page()
            page.goto(server.address)

            def go(where: str, ready: str, top: str | None = None) -> None:
                page.evaluate("where => { location.hash = where; }", where)
                page.locator(ready).first.wait_for()
                if top is not None:
                    page.locator(top).evaluate("node => node.scrollIntoView()")

            pages: dict[str, Callable[[], None]] = {
                "dashboard-runs": lambda: go("#/", "tbody tr"),
                "dashboard-run": lambda: go("#/run/pfedrlla", "#map canvas"),
                "dashboard-start": lambda: go("#/start", "form"),
                "dashboard-weights": lambda: go("#/run/pfedrlla", "#method canvas", "section:has(#method)"),
                "dashboard-groups": lambda: go("#/run/fedalp", "#method svg", "section:has(#method)"),
                "dashboard-clock": lambda: go("#/run/hapfl", "#method svg", ".panel:has-text('Rounds on the clock')"),
                "dashboard-client": lambda: go("#/run/hapfl/client/3", "#data svg"),
                "report-comparison": lambda: page.goto(report.as_uri()) and None,
            }
            for name, show in pages.items():
                if not names or name in names:
                    show()
                    page.screenshot(path=PICTURES / f"{name}.png")
                    print(PICTURES / f"{name}.png")


if __name__ == "__main__":
    main(sys.argv[1:])
