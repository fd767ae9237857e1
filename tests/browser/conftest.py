"""Fixtures: a live service with its pages, and a real browser that fails on forbidden requests and messages."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from pasto.dashboard import Dashboard
from pasto.service.http.server import ServiceProcess
from pasto.service.settings import Settings

if TYPE_CHECKING:  # collection must not need an installed browser
    from playwright.sync_api import Browser, Dialog, Page, Request

WIDTHS = {
    "desktop": (1280, "light"),
    "phone": (390, "dark"),
    "picture": (1100, "light"),
    "wide": (1440, "light"),
    "tablet": (1024, "dark"),
    "bright phone": (390, "light"),
}
WATCH = """
window.trouble = [];
document.addEventListener('securitypolicyviolation', event => window.trouble.push(event.violatedDirective));
"""


@dataclass
class Site:
    """Service on a free port, with a client for its API."""

    running: ServiceProcess
    client: httpx.Client
    thread: threading.Thread

    @property
    def url(self) -> str:
        return self.running.url

    def stop(self) -> None:
        self.running.stop()
        self.thread.join()


@dataclass
class WatchedPage:
    """Browser page that records requests, dialogs and errors that a PASTO page never causes."""

    page: Page
    url: str
    screenshots: Path
    label: str
    trouble: list[str] = field(default_factory=list)

    def go(self, path: str) -> None:
        self.page.goto(self.url + path)

    def wait_until_loaded(self) -> None:
        """Wait until nothing is loading any more."""
        self.expect(".loading").to_have_count(0, timeout=60_000)

    def expect(self, place: str) -> Any:
        """Return an expectation for a part of the page."""
        from playwright.sync_api import expect

        return expect(self.page.locator(place))

    def save_screenshot(self, name: str, *, most: str | None = None) -> None:
        """Save a screenshot of the page, or of one part of it."""
        size = self.page.viewport_size
        assert size is not None
        clip = None
        if most is not None:
            end = self.page.locator(most).evaluate("each => each.getBoundingClientRect().bottom + scrollY")
            clip = {"x": 0, "y": 0, "width": size["width"], "height": round(end) + 12}
        self.page.screenshot(path=self.screenshots / f"{name}-{self.label}.png", full_page=True, clip=clip)

    def check(self) -> None:
        """Check that the page made no foreign request, opened no dialog, raised no error and does not overflow."""
        found = self.page.evaluate("window.trouble")
        assert [*self.trouble, *found] == []
        assert self.page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


Serve = Callable[..., Site]
Open = Callable[..., WatchedPage]


@contextmanager
def serving(**settings: Any) -> Iterator[Site]:
    given = {"store": "memory:", "port": 0, "poll": 0.2, "shutdown_timeout": 2, "request_timeout": 120, **settings}
    running = ServiceProcess(Settings(**given), pages=lambda service: Dashboard(service).routes)
    thread = threading.Thread(target=running.serve)
    thread.start()
    try:
        while not running.started and thread.is_alive():
            time.sleep(0.01)
        with httpx.Client(base_url=running.url, timeout=120) as client:
            yield Site(running, client, thread)
    finally:
        running.stop()
        thread.join()


@pytest.fixture
def site() -> Iterator[Site]:
    with serving() as site:
        yield site


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert found, "the tests in a browser need chromium on the PATH: apt-get install chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def screenshots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder for screenshots: the one that the environment names, or one of pytest."""
    given = os.environ.get("PASTO_SCREENSHOTS")
    folder = Path(given) if given else tmp_path_factory.mktemp("screenshots")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture
def visit(chromium: Browser, screenshots: Path, site: Site) -> Iterator[Open]:
    """Return a function that opens pages, each in a browser profile of its own."""
    contexts = []

    def visiting(label: str = "desktop") -> WatchedPage:
        width, scheme = WIDTHS[label]
        context = chromium.new_context(
            viewport={"width": width, "height": 900}, color_scheme="light" if scheme == "light" else "dark"
        )
        contexts.append(context)
        context.set_default_timeout(60_000)
        context.add_init_script(WATCH)
        base = site.url
        watched = WatchedPage(context.new_page(), base, screenshots, label)
        trouble = watched.trouble

        def record_dialog(dialog: Dialog) -> None:
            trouble.append(f"dialog {dialog.message}")
            dialog.dismiss()

        def record_request(request: Request) -> None:
            if not request.url.startswith((base + "/", "data:", "about:")):
                trouble.append(f"request {request.url}")

        watched.page.on("dialog", record_dialog)
        watched.page.on("pageerror", lambda error: trouble.append(f"error {error}"))
        watched.page.on("request", record_request)
        return watched

    yield visiting
    for context in contexts:
        context.close()
