"""A real browser for tests: Debian's Chromium, driven by Playwright."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.waiting import PATIENCE

PROGRAM = shutil.which("chromium")


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser. Without one the test is skipped, but fails in continuous integration."""
    if PROGRAM is None:
        reason = "no chromium on this machine: make browser installs it"
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=PROGRAM, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def opened(browser: Any, address: str, **looks: Any) -> Iterator[Any]:
    """A page at an address; fails if the page logs an error, throws one, or asks another host for something."""
    wrong: list[str] = []
    with browser.new_context(**looks) as context:
        page = context.new_page()
        page.set_default_timeout(1000 * PATIENCE)
        page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("dialog", lambda dialog: (wrong.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(address)
        yield page
        origin = address.split("/")[2]
        wrong += [url for url in asked if not url.startswith("data:") and url.split("/")[2] != origin]
    assert wrong == []


def overflow(page: Any) -> int:
    """By how many pixels a page is wider than its window."""
    return int(page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))
