"""The front door: what `import pasto` offers, what it costs, and that every public name explains itself."""

import importlib
import importlib.metadata
import inspect
import pkgutil
import subprocess
import sys
from collections.abc import Iterator

import pytest

import pasto

PUBLIC = [
    "Assignment",
    "Blend",
    "Candidates",
    "Choice",
    "Integer",
    "Objective",
    "Observation",
    "PastoError",
    "Real",
    "Space",
    "Study",
    "grid",
    "maximize",
    "minimize",
    "ratio",
    "sobol",
    "solve",
    "utility",
]


def offered_by_rooms() -> Iterator[tuple[str, object]]:
    """Every class and function that a room offers: its __all__, or what a plain module defines without underscore."""
    for room in pkgutil.walk_packages(pasto.__path__, "pasto."):
        if room.name == "pasto.__main__" or (room.name.count(".") > 1 and not room.ispkg):
            continue
        module = importlib.import_module(room.name)
        own = [name for name, value in vars(module).items() if getattr(value, "__module__", None) == room.name]
        for name in getattr(module, "__all__", [name for name in own if not name.startswith("_")]):
            if inspect.isclass(value := getattr(module, name)) or inspect.isroutine(value):
                yield f"{room.name}.{name}", value


def sentence_of(value: object) -> str:
    """The docstring that someone wrote, and not the signature that a dataclass writes for itself."""
    written = inspect.cleandoc(value.__doc__ or "")
    return "" if written.startswith(f"{getattr(value, '__name__', '')}(") else written


def test_the_public_names_are_exactly_these() -> None:
    assert pasto.__all__ == PUBLIC
    assert set(dir(pasto)) == {*PUBLIC, "__version__"}


def test_a_name_that_is_not_public_is_refused() -> None:
    with pytest.raises(AttributeError, match="no attribute 'optimise'"):
        _ = pasto.optimise


def test_the_version_is_the_installed_one() -> None:
    assert pasto.__version__ == importlib.metadata.version("pasto")


@pytest.mark.parametrize("start", ["import pasto", "import pasto.records, pasto.errors; pasto.PastoError"])
def test_the_door_is_light(start: str) -> None:
    heavy = "numpy", "scipy", "click", "rich", "matplotlib"
    found = subprocess.run(
        [sys.executable, "-c", f"{start}; import sys; print([name for name in {heavy} if name in sys.modules])"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.strip() == "[]"


def test_every_public_name_shows_a_running_example() -> None:
    assert [name for name in PUBLIC if ">>> " not in sentence_of(getattr(pasto, name))] == []


def test_everything_a_room_offers_says_what_it_is() -> None:
    assert [name for name, value in offered_by_rooms() if not sentence_of(value)] == []


def test_the_package_runs_as_a_command() -> None:
    shown = subprocess.run([sys.executable, "-m", "pasto", "--help"], capture_output=True, text=True, check=True)
    assert shown.stdout.startswith("Usage: pasto ")
