from __future__ import annotations

import hmac
from collections.abc import Iterator

import pytest

from pasto.errors import OptionError
from pasto.service.api_keys import KEY, ApiKeys, redact
from pasto.service.scopes import permits
from pasto.store import Store, open_store


@pytest.fixture
def store() -> Iterator[Store]:
    store = open_store("memory:")
    yield store
    store.close()


def test_a_key_is_stored_as_a_digest_only(store: Store) -> None:
    made = ApiKeys(store).create("web", ["read"])
    (row,) = store.list_keys()
    assert KEY.fullmatch(made.key)
    assert made.key.split("_")[2] not in repr(row)
    assert len(row.digest) == 64


def test_only_the_key_itself_is_known(store: Store) -> None:
    keys = ApiKeys(store)
    key = keys.create("web", ["read"]).key
    assert keys.check(key) is not None
    for wrong in (
        "",
        "pasto",
        key[:-1],
        key + "0",
        key.upper(),
        key[:-1] + "x",
        f" {key}",
        "pasto_" + "0" * 77,
        "\ud800",
    ):
        assert keys.check(wrong) is None


def test_every_check_compares_in_constant_time(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = ApiKeys(store)
    key = keys.create("web", ["read"]).key
    compared: list[tuple[str, str]] = []
    honest = hmac.compare_digest

    def watched(one: str, other: str) -> bool:
        compared.append((one, other))
        return honest(one, other)

    monkeypatch.setattr(hmac, "compare_digest", watched)
    for text in (key, "pasto_000000000000_" + "0" * 64, "nonsense"):
        keys.check(text)
    assert [len(a) == len(b) == 64 for a, b in compared] == [True] * 3


def test_a_key_expires(store: Store) -> None:
    now = 1000.0
    keys = ApiKeys(store, clock=lambda: now)
    key = keys.create("web", ["read"], expires_in=60).key
    assert keys.check(key) is not None
    now = 1060.0
    assert keys.check(key) is None
    assert not keys.usable
    assert not keys.none


def test_a_revoked_key_is_refused_here_at_once_and_elsewhere_after_a_refresh(store: Store) -> None:
    here, there = ApiKeys(store), ApiKeys(store)
    made = here.create("web", ["read"])
    there.refresh()
    assert there.check(made.key) is not None
    assert here.revoke(made.prefix)
    assert here.check(made.key) is None
    there.refresh()
    assert there.check(made.key) is None
    assert not here.revoke(made.prefix)
    assert not here.revoke("ffffffffffff")


def test_rotation_overlaps(store: Store) -> None:
    now = 1000.0
    keys = ApiKeys(store, clock=lambda: now)
    old = keys.create("web", ["read", "ingest"], expires_in=7200)
    new = keys.rotate(old.prefix, grace=600)
    assert (new.name, new.scopes) == ("web", ("read", "ingest"))
    assert new.expires_at == 1000.0 + 7200
    assert keys.check(old.key) is not None
    assert keys.check(new.key) is not None
    now = 1600.0
    keys.refresh()
    assert keys.check(old.key) is None
    assert keys.check(new.key) is not None
    with pytest.raises(OptionError, match="no valid key"):
        keys.rotate(old.prefix)


def test_a_key_in_its_last_days_can_still_be_revoked_at_once(store: Store) -> None:
    keys = ApiKeys(store)
    old = keys.create("web", ["read"])
    keys.rotate(old.prefix, grace=600)
    assert keys.revoke(old.prefix)
    keys.refresh()
    assert keys.check(old.key) is None


def test_admin_may_do_everything(store: Store) -> None:
    keys = ApiKeys(store)
    admin = keys.check(keys.create("boss", ["admin"]).key)
    web = keys.check(keys.create("web", ["evaluate", "ingest"]).key)
    assert admin is not None
    assert web is not None
    assert permits(admin.scopes, ["read"])
    assert permits(web.scopes, ["ingest"])
    assert not permits(web.scopes, ["admin"])
    assert not permits(web.scopes, ["read"])


@pytest.mark.parametrize(
    ("name", "scopes", "expires_in", "message"),
    [
        ("", ["read"], None, "1 to 100 printable characters"),
        ("a\nb", ["read"], None, "printable"),
        ("web", [], None, "got none"),
        ("web", ["write"], None, "'write'"),
        ("web", ["read", "read:"], None, "'read:'"),
        ("web", ["write:feed"], None, "'write:feed'"),
        ("web", ["read:Feed"], None, "'read:Feed'"),
        ("web", ["read:feed\n"], None, "read:feed"),
        ("web", ["read:*"], None, "such as read:feed"),
        ("web", ["read"], 0, "expires in"),
        ("web", ["read"], float("nan"), "expires in"),
    ],
)
def test_what_makes_no_key(store: Store, name: str, scopes: list[str], expires_in: float | None, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        ApiKeys(store).create(name, scopes, expires_in=expires_in)
    assert store.list_keys() == []


def test_keys_are_removed_from_every_log_line(store: Store) -> None:
    key = ApiKeys(store).create("web", ["read"]).key
    text = redact(f"Authorization: Bearer {key}; {key!r}")
    assert key.split("_")[2] not in text
    assert text.count(key.split("_")[1]) == 2
