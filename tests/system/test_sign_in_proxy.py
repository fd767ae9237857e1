"""`pasto serve` in a process of its own, and a proxy before it that signs people in."""

from __future__ import annotations

import asyncio
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from click.testing import CliRunner

from pasto.cli import main
from pasto.service.api_keys import ApiKeys
from pasto.service.study_file import EXAMPLE
from pasto.store import open_store
from tests.system.test_http_serve import command, refused

PROXY_ADDRESS = "127.0.0.2"
"""Address that the proxy connects from; callers without it come from 127.0.0.1."""
GROUPS = {"ann@example.org": "ops,search", "bob@example.org": "feed-team", "eve@example.org": "guests"}
"""Groups of the people who can sign in, by name."""
IDENTITY = (b"x-forwarded-user:", b"x-forwarded-groups:")
SETTINGS = (
    *("--proxy-user-header", "X-Forwarded-User", "--proxy-addresses", PROXY_ADDRESS),
    *("--proxy-roles", "ops=admin, feed-team=read:feed", "--proxy-sign-out", "/oauth2/sign_out"),
)


class SignInProxy:
    """Proxy that believes a header `login`, in place of a password, and names the person to the service."""

    def __init__(self, url: str) -> None:
        address = urlsplit(url)
        self._service = (address.hostname, address.port)
        self._loop = asyncio.new_event_loop()
        self._server = self._loop.run_until_complete(asyncio.start_server(self._forward, "127.0.0.1", 0))
        host, port = self._server.sockets[0].getsockname()
        self.url = f"http://{host}:{port}"

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        lines = (await reader.readuntil(b"\r\n\r\n")).rstrip().split(b"\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(b": ") for line in lines[1:])}
        body = await reader.readexactly(int(headers.get(b"content-length", b"0")))
        sent = [line for line in lines if not line.lower().startswith((*IDENTITY, b"connection:"))]
        if name := headers.get(b"login", b"").decode():
            sent += [f"X-Forwarded-User: {name}".encode(), f"X-Forwarded-Groups: {GROUPS[name]}".encode()]
        service_reader, service_writer = await asyncio.open_connection(*self._service, local_addr=(PROXY_ADDRESS, 0))
        service_writer.write(b"\r\n".join([*sent, b"Connection: close", b"", b""]) + body)
        writer.write(await service_reader.read())
        service_writer.close()
        writer.close()

    def serve(self) -> None:
        """Forward requests until ended."""
        self._loop.run_forever()
        self._server.close()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    def end(self) -> None:
        """End `serve` from another thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)


@contextmanager
def serving(*words: str) -> Iterator[tuple[str, str]]:
    """Run a service and a proxy before it; yield their addresses."""
    process = subprocess.Popen(
        command("--port", "0", *words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("pasto is serving"), line + process.communicate()[1]
        url = line.split()[-1]
        proxy = SignInProxy(url)
        thread = threading.Thread(target=proxy.serve)
        thread.start()
        try:
            yield url, proxy.url
        finally:
            proxy.end()
            thread.join()
    finally:
        process.terminate()
        errors = process.communicate()[1]
    assert errors.count("is ignored: the address is not one of proxy_addresses") == 1, errors


def test_people_come_through_the_proxy_only(tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    with serving("--store", store, *SETTINGS) as (url, proxy_url):
        with httpx.Client(base_url=proxy_url, timeout=60, headers={"login": "ann@example.org"}) as ann:
            ann.post("/v1/studies", content=EXAMPLE, headers={"content-type": "application/yaml"}).raise_for_status()
            ann.patch("/v1/studies/feed", json={"action": "start", "reason": "go"}).raise_for_status()
            page = ann.get("/studies/feed")
            assert "ann@example.org" in page.text
            assert "/oauth2/sign_out" in page.text
            made = ann.post("/v1/keys", json={"name": "sdk", "scopes": ["evaluate:feed"]}).json()["key"]
            assert [line["who"] for line in ann.get("/v1/studies/feed/audit").json()["audit"]] == [
                "ann@example.org"
            ] * 2
        forged = {"x-forwarded-user": "ann@example.org", "x-forwarded-groups": "ops"}
        for headers in (forged, {**forged, "x-forwarded-for": PROXY_ADDRESS}, {}):
            assert httpx.get(f"{url}/v1/studies", headers=headers).status_code == 401
            assert httpx.get(f"{url}/", headers=headers).headers["location"].startswith("/login")
            assert httpx.get(f"{proxy_url}/v1/studies", headers=headers).status_code == 401
        bob = {**forged, "login": "bob@example.org"}  # with the headers of an admin, which the proxy removes
        assert httpx.get(f"{proxy_url}/v1/studies/feed", headers=bob).status_code == 200
        assert httpx.delete(f"{proxy_url}/v1/studies/feed", headers=bob).status_code == 403
        assert httpx.get(f"{proxy_url}/v1/keys", headers=bob).status_code == 403
        eve = httpx.get(f"{proxy_url}/", headers={"login": "eve@example.org"})
        assert (eve.status_code, "none of their groups has a role" in eve.text) == (403, True)
        for place in (url, proxy_url):
            sdk = httpx.post(
                f"{place}/v1/studies/feed/assign", json={"unit": "u"}, headers={"authorization": f"Bearer {made}"}
            )
            assert sdk.status_code == 200
    printed = CliRunner().invoke(main, ["study", "audit", "feed", "--store", store])
    assert printed.stdout.count("ann@example.org") == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (SETTINGS[:2] + SETTINGS[4:], "proxy_addresses is empty"),
        ((*SETTINGS[:2], "--proxy-addresses", "0.0.0.0/0", *SETTINGS[4:]), "anyone could sign in as anyone"),
        (SETTINGS[:4], "proxy_roles is empty"),
        (SETTINGS[2:4], "proxy_addresses is set without proxy_user_header"),
    ],
)
def test_an_unsafe_sign_in_does_not_start(tmp_path: Path, words: tuple[str, ...], message: str) -> None:
    assert message in refused("--store", str(tmp_path / "store"), *words)


def test_a_proxy_replaces_the_first_key_beyond_this_machine(tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    with serving("--store", store, "--host", "0.0.0.0", *SETTINGS) as (url, proxy_url):  # noqa: S104 -- the point
        port = urlsplit(url).port
        forged = {"x-forwarded-user": "ann@example.org", "x-forwarded-groups": "ops"}
        assert httpx.get(f"http://127.0.0.1:{port}/v1/studies", headers=forged).status_code == 401
        assert httpx.get(f"{proxy_url}/v1/studies", headers={"login": "ann@example.org"}).json() == {"studies": []}
    opened = open_store(store)
    assert ApiKeys(opened).none
    opened.close()
