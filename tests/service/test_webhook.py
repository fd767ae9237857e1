"""Addresses to which a webhook may go."""

from __future__ import annotations

import pytest

from pasto.errors import OptionError
from pasto.service.webhook import Webhook, WebhookSpec

OPS = WebhookSpec("ops", "https://hooks.example.com/")


@pytest.mark.parametrize(
    "address",
    ["10.1.2.3", "127.0.0.1", "169.254.169.254", "192.168.0.9", "::1", "fe80::1", "fd00::1", "::ffff:10.0.0.1"],
)
def test_addresses_of_private_networks_are_refused_unless_their_name_is_allowed(address: str) -> None:
    found = [address]
    with pytest.raises(OptionError, match="which is not public"):
        Webhook(OPS, resolve=lambda *_: found).address()
    allowed = frozenset({"hooks.example.com"})
    assert Webhook(OPS, allowed, resolve=lambda *_: found).address() == address


def test_a_host_that_is_not_found_now_may_be_found_later(caplog: pytest.LogCaptureFixture) -> None:
    answers: list[list[str]] = [["10.0.0.7"]]

    def resolve(host: str, port: int) -> list[str]:
        if not answers:
            raise OSError("no name server")
        return answers.pop()

    webhook = Webhook(OPS, resolve=resolve)
    with pytest.raises(OptionError, match=r"is at 10\.0\.0\.7, which is not public"):
        webhook.check()
    webhook.check()
    assert "cannot be resolved now: no name server" in caplog.text


def test_a_name_with_one_public_address_goes_there_and_nowhere_else() -> None:
    found = ["10.0.0.1", "93.184.216.34"]
    assert Webhook(OPS, resolve=lambda *_: found).address() == "93.184.216.34"


@pytest.mark.parametrize(
    "url",
    ["file:///etc/passwd", "ftp://hooks.example.com/", "https://", "hooks", "https://a:b@c.example.com/", "http://[::"],
)
def test_what_is_no_web_address_is_refused(url: str) -> None:
    with pytest.raises(OptionError):
        Webhook(WebhookSpec("ops", url))


def test_a_host_that_is_not_among_those_allowed_is_refused() -> None:
    with pytest.raises(OptionError, match="not among webhook_hosts"):
        Webhook(WebhookSpec("ops", "https://evil.example.com/"), frozenset({"hooks.example.com"}))
