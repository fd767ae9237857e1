"""Object injection: parsers build plain values only; no tag, pickle or array creates an object or calls a function."""

from __future__ import annotations

import ast
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pasto
import pasto_research
import pasto_sdk
from pasto.errors import PastoError, StudyFileError
from pasto.service.service import Service
from pasto.service.study_file import load_spec, read_document
from pasto.store import open_store
from pasto_research.paper.replay.cache import Cache
from pasto_sdk.policy import PublishedPolicy

TAGS = [
    "!!python/object/apply:os.mkdir [{}]",
    "!!python/object/new:os.mkdir [{}]",
    "!!python/object/apply:os.system ['mkdir {}']",
    "!!python/object/apply:subprocess.Popen [[mkdir, {}]]",
    '!!python/object/apply:builtins.eval [\'__import__("os").mkdir("{}")\']',
    "!!python/object/apply:builtins.exec ['import os; os.mkdir(\"{}\")']",
    "!!python/object/apply:pathlib.Path.mkdir [!!python/object/apply:pathlib.Path [{}]]",
    "!!python/object:os.mkdir {{}}",
    "!!python/object/new:tuple [!!python/object/new:map [!!python/name:os.mkdir , [{}]]]",
    "!!python/name:os.mkdir ''",
    "!!python/module:os ''",
    "!!python/tuple [a, b]",
    "!!python/bytes 'YQ=='",
    "!!python/complex '1+2j'",
    "!!binary 'YQ=='",
    "!!map {{? [a] : b}}",
    "!!set {{a, b}}",
    "!!omap [a: 1]",
    "!mkdir {}",
    "!<tag:yaml.org,2002:python/object/apply:os.mkdir> [{}]",
]
FRAMES = ["{}", "name: {}", "name: feed\nmetrics: {}", "name: feed\nparameters: {{w: {}}}", "? {}\n: feed"]


class EvilObject:
    """Object that creates a folder when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.folder),)


@pytest.fixture
def forbidden_path(tmp_path: Path) -> Path:
    """Return a path that must not be created."""
    return tmp_path / "forbidden_path"


def refused(work: Callable[[], object]) -> bool:
    try:
        work()
    except PastoError:
        return True
    return False


@pytest.mark.parametrize("tag", TAGS)
def test_tags_of_yaml_build_nothing(tag: str, forbidden_path: Path) -> None:
    for frame in FRAMES:
        text = frame.format(tag.format(forbidden_path))
        try:
            found = read_document(text, "yaml")
        except StudyFileError:
            continue
        assert plain(found), text
    assert not forbidden_path.exists()


def plain(value: object) -> bool:
    """Return true for a value that JSON has, or a date or set that the parser refuses later."""
    if isinstance(value, dict):
        return all(plain(each) for pair in value.items() for each in pair)
    return isinstance(value, list | str | int | float | bool | bytes | set | type(None) | tuple)


def test_a_document_with_strange_values_is_no_study() -> None:
    service = Service(open_store("memory:"))
    for tag in ("!!binary 'YQ=='", "!!set {a, b}", "!!omap [a: 1]", "2026-01-01", "!!timestamp 2026-01-01"):
        for field in ("name", "description", "unit", "baseline", "parameters", "metrics", "goal", "rounds"):
            with pytest.raises(PastoError):
                service.create(read_document(f"{field}: {tag}", "yaml"), who="ann")
    assert service.studies() == []
    service.shutdown()


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_is_nowhere_taken_for_anything(protocol: int, forbidden_path: Path, tmp_path: Path) -> None:
    body = pickle.dumps(EvilObject(forbidden_path), protocol)
    kinds: tuple[Any, ...] = ("yaml", "json", "toml")
    assert all(refused(lambda kind=kind: read_document(body, kind)) for kind in kinds)  # type: ignore[misc]
    for ending in ("yaml", "json", "toml", "pkl"):
        file = tmp_path / f"study.{ending}"
        file.write_bytes(body)
        assert refused(lambda file=file: load_spec(file))  # type: ignore[misc]
    assert refused(lambda: PublishedPolicy.from_text(body))
    assert refused(lambda: pasto.Study.from_state(body.decode("latin-1")))  # type: ignore[arg-type]
    service = Service(open_store("memory:"))
    for lines in (False, True):
        assert refused(lambda lines=lines: decode_body(service, body, lines))  # type: ignore[misc]
    assert refused(lambda: service.store.restore_backup(tmp_path / "study.pkl"))
    service.shutdown()
    assert not forbidden_path.exists()


def decode_body(service: Service, body: bytes, lines: bool) -> None:
    """Check that invalid events are refused one by one, or all together."""
    from pasto.service.event_decoder import RejectedEvent

    if all(isinstance(each, RejectedEvent) for each in service.decode(body, lines=lines)):
        raise PastoError


def test_a_file_of_arrays_is_read_without_its_objects(forbidden_path: Path, tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    path = cache.path("means", {"seed": 1})
    assert path is not None
    path.parent.mkdir()
    np.savez(path, allow_pickle=True, means=np.array([EvilObject(forbidden_path)], dtype=object))
    with pytest.raises(ValueError, match="allow_pickle=False"):
        cache.arrays("means", {"seed": 1}, lambda: {"means": np.zeros(1)})
    path.write_bytes(pickle.dumps(EvilObject(forbidden_path)))
    with pytest.raises(ValueError, match="pickle"):
        cache.arrays("means", {"seed": 1}, lambda: {"means": np.zeros(1)})
    assert not forbidden_path.exists()


# Calls that the source does not contain

PACKAGES = (pasto, pasto_research, pasto_sdk)
SOURCES = {
    path: ast.parse(path.read_text())
    for package in PACKAGES
    for path in Path(str(package.__file__)).parent.rglob("*.py")
}
FORBIDDEN = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}
CALLS = {"eval", "exec", "compile", "__import__"}


def names(node: ast.AST) -> str:
    """Return a call's function as the source writes it."""
    return ast.unparse(node.func) if isinstance(node, ast.Call) else ""


def test_no_module_can_unpickle_or_evaluate() -> None:
    assert len(SOURCES) > 200
    found = []
    for path, tree in SOURCES.items():
        for node in ast.walk(tree):
            imported = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            imported += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if FORBIDDEN & {name.partition(".")[0] for name in imported} or names(node) in CALLS:
                found.append(f"{path.name}:{getattr(node, 'lineno', 0)}")
    assert found == []


def test_arrays_and_weights_are_loaded_as_numbers_only() -> None:
    loads = []
    for path, tree in SOURCES.items():
        for node in ast.walk(tree):
            if names(node) in ("np.load", "numpy.load", "torch.load") and isinstance(node, ast.Call):
                given = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
                loads.append(path.name)
                assert given.get("allow_pickle") == "False" or given.get("weights_only") == "True", path
    assert loads


def test_nothing_is_written_that_a_spreadsheet_would_calculate() -> None:
    """Check that only `pasto history` writes a table for spreadsheets, and that it refuses formulas."""
    writers = ("csv.writer", "csv.DictWriter", "to_csv", "to_excel")
    found = [
        f"{path.name}:{node.lineno}"
        for path, tree in SOURCES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and names(node).endswith(writers)
    ]
    assert [place.partition(":")[0] for place in found] == ["history.py"]
