"""A Chromium without a window, and a websocket handshake as a browser sends it."""

import base64
import contextlib
import shutil
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

_CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
_FLAGS = "--headless --no-sandbox --disable-gpu --use-gl=angle --use-angle=swiftshader --enable-unsafe-swiftshader"
_FLAGS += " --no-first-run --disable-background-networking --disable-component-update --disable-sync"
FIRST_PICTURE = 60_000  # ms; rendering in software takes its time


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


def handshake_status(port: int, name: str, origin: str | None) -> str:
    """The answer of a server to a websocket handshake of a page, as a browser would send it."""
    origins = f"Origin: {origin}\r\n" if origin is not None else ""
    request = (
        f"GET / HTTP/1.1\r\nHost: {name}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n{origins}"
        f"Sec-WebSocket-Key: {base64.b64encode(bytes(16)).decode()}\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(request.encode())
        return connection.recv(4096).decode(errors="replace").split("\r\n", 1)[0]


def wait_until(page: Any, holds: Callable[[], bool]) -> None:
    """Let a page live until something holds, for a minute at most; a busy computer takes its time."""
    for _ in range(1200):
        if holds():
            return
        page.wait_for_timeout(50)
    raise AssertionError("it never happened")
