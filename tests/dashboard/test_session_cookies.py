"""Sessions of the dashboard over real connections, on a store in a directory."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from pasto.dashboard import Dashboard
from pasto.dashboard.sessions import COOKIE
from pasto.service.api_keys import ApiKeys
from pasto.service.http.server import ServiceProcess
from pasto.service.settings import Settings
from pasto.store import open_store
from pasto.store.dashboard_sessions import FILE


@contextmanager
def serving(store: str) -> Iterator[httpx.Client]:
    """Serve the dashboard, and yield a browser."""
    running = ServiceProcess(
        Settings(store=store, port=0, shutdown_timeout=2), pages=lambda service: Dashboard(service).routes
    )
    thread = threading.Thread(target=running.serve)
    thread.start()
    try:
        while not running.started and thread.is_alive():
            time.sleep(0.005)
        with httpx.Client(base_url=running.url, timeout=60) as browser:
            yield browser
    finally:
        running.stop()
        thread.join()


def token(browser: httpx.Client, path: str) -> str:
    found = re.search(r'name="token" value="([0-9a-f]{64})"', browser.get(path).text)
    assert found is not None
    return found[1]


def log_in(browser: httpx.Client, key: str) -> str:
    """Log in, and return the cookie."""
    assert browser.post("/login", data={"token": token(browser, "/login"), "key": key}).status_code == 303
    assert browser.get("/").status_code == 200
    return browser.cookies[COOKIE]


def replay(browser: httpx.Client, cookie: str) -> int:
    """Return the status of a page for a stolen cookie."""
    return httpx.get(browser.base_url, headers={"cookie": f"{COOKIE}={cookie}"}).status_code


def test_a_cookie_replayed_after_the_logout_is_refused(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "data"))
    key = str(ApiKeys(store).create("ann", ["admin"]).key)
    store.close()
    with serving(str(tmp_path / "data")) as browser:
        stolen = log_in(browser, key)
        assert replay(browser, stolen) == 200
        assert browser.post("/logout", data={"token": token(browser, "/")}).status_code == 303
        assert replay(browser, stolen) == 303
        browser.cookies.clear()
        held = log_in(browser, key)
        assert (tmp_path / "data" / FILE).stat().st_mode & 0o777 == 0o600
    with serving(str(tmp_path / "data")) as browser:  # restarted
        assert replay(browser, held) == 200
        assert replay(browser, stolen) == 303
