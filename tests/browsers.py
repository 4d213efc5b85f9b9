"""A Chromium without a window, and what a page contains."""

import base64
import contextlib
import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

_CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
_FLAGS = "--headless --no-sandbox --disable-gpu --use-gl=angle --use-angle=swiftshader --enable-unsafe-swiftshader"
_FLAGS += " --no-first-run --disable-background-networking --disable-component-update --disable-sync"


@contextlib.contextmanager
def chromium() -> Iterator[Any]:
    """A browser; the test is skipped where there is no Chromium or no playwright."""
    if _CHROMIUM is None:
        pytest.skip("no Chromium found; install the package chromium to test what a browser shows")
    playwright = pytest.importorskip("playwright.sync_api", reason="driving the browser needs playwright")
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=_CHROMIUM, args=_FLAGS.split())
        yield opened
        opened.close()


def content_of(path: Path) -> dict[str, Any]:
    """What the script of a page shows."""
    found = re.search(r'<script id="content" type="application/json">(.*?)</script>', path.read_text(), re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def numbers_of(content: dict[str, Any], sample: int, name: str, size: int) -> np.ndarray:
    """Numbers of a sample of a replay, (instants, groups, size)."""
    values = np.frombuffer(base64.b64decode(content["motions"][str(sample)][name]), "<f4")
    return values.reshape(len(content["instants"]), -1, size)


def wait_until(page: Any, holds: Callable[[], bool]) -> None:
    """Let a page live until something holds, for a minute at most; a busy computer takes its time."""
    for _ in range(1200):
        if holds():
            return
        page.wait_for_timeout(50)
    raise AssertionError("it never happened")
