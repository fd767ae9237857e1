"""Requirements: every pin has its hashes, and every dependency in pyproject.toml is pinned."""

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
OWN = {"pasto", "pasto-sdk"}
BUILD = ["editables", "hatchling"]
PIN = re.compile(r"^(\S+)==(\S+)(?: ;.*)? \\\n(?: +--hash=sha256:[0-9a-f]{64}(?: \\)?\n)+", re.MULTILINE)


def pins_of(name: str) -> dict[str, str]:
    """Return versions by package in one of the files, which contains only hashed pins and comments."""
    text = (ROOT / "requirements" / name).read_text(encoding="utf-8")
    assert [line for line in PIN.sub("", text).splitlines() if line.strip() and not line.lstrip().startswith("#")] == []
    return dict(PIN.findall(text))


def declared(texts: list[str]) -> list[Requirement]:
    """Return the declared requirements, with those of the project's own extras in place of the extras."""
    found = [Requirement(text) for text in texts]
    inner = [text for own in found if own.name == "pasto" for name in own.extras for text in extras(name)]
    return [other for other in found if other.name not in OWN] + (declared(inner) if inner else [])


def extras(name: str) -> list[str]:
    return list(PROJECT["optional-dependencies"][name])


def unpinned(asked: list[Requirement], pins: dict[str, str]) -> list[str]:
    """Return requirements without a pin, or with a pin in a version that does not fit."""
    return [str(each) for each in asked if each.name not in pins or pins[each.name] not in each.specifier]


def test_what_running_needs_is_pinned() -> None:
    asked = declared([*PROJECT["dependencies"], *extras("serve"), *BUILD])
    assert unpinned(asked, pins_of("run.txt")) == [], "pyproject.toml has changed; run `make lock`"


def test_what_testing_needs_is_pinned() -> None:
    asked = declared([*PROJECT["dependencies"], *extras("dev")])
    assert unpinned(asked, pins_of("dev.txt")) == [], "pyproject.toml has changed; run `make lock`"


def test_what_the_services_need_is_pinned() -> None:
    asked = declared([*PROJECT["dependencies"], *extras("dev"), *extras("browser"), *extras("spark")])
    assert unpinned(asked, pins_of("services.txt")) == [], "pyproject.toml has changed; run `make lock`"
    assert pins_of("dev.txt").items() <= pins_of("services.txt").items()


def test_both_files_pin_the_same_versions() -> None:
    assert pins_of("run.txt").items() <= pins_of("dev.txt").items()


def test_uv_is_pinned_alone() -> None:
    assert list(pins_of("uv.txt")) == ["uv"]
