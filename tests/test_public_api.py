"""Package `pasto`: its public names, the cost of its import, and a docstring for every public name."""

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
    "history_from_log",
    "maximize",
    "minimize",
    "plan_study",
    "ratio",
    "sobol",
    "solve",
    "utility",
]


def public_objects() -> Iterator[tuple[str, object]]:
    """Yield every public class and function of a package: its __all__, or the names of a module without underscore."""
    for package in pkgutil.walk_packages(pasto.__path__, "pasto."):
        if package.name == "pasto.__main__" or (package.name.count(".") > 1 and not package.ispkg):
            continue
        module = importlib.import_module(package.name)
        own = [name for name, value in vars(module).items() if getattr(value, "__module__", None) == package.name]
        for name in getattr(module, "__all__", [name for name in own if not name.startswith("_")]):
            if inspect.isclass(value := getattr(module, name)) or inspect.isroutine(value):
                yield f"{package.name}.{name}", value


def read_docstring(value: object) -> str:
    """Return a written docstring, and not the signature that a dataclass generates."""
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


@pytest.mark.parametrize("start", ["import pasto", "import pasto.blend, pasto.errors; pasto.PastoError"])
def test_the_import_is_light(start: str) -> None:
    heavy = "numpy", "scipy", "click", "rich", "matplotlib"
    result = subprocess.run(
        [sys.executable, "-c", f"{start}; import sys; print([name for name in {heavy} if name in sys.modules])"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.strip() == "[]"


def test_every_public_name_shows_a_running_example() -> None:
    assert [name for name in PUBLIC if ">>> " not in read_docstring(getattr(pasto, name))] == []


def test_every_public_object_has_a_docstring() -> None:
    assert [name for name, value in public_objects() if not read_docstring(value)] == []


def test_the_package_runs_as_a_command() -> None:
    result = subprocess.run([sys.executable, "-m", "pasto", "--help"], capture_output=True, text=True, check=True)
    assert result.stdout.startswith("Usage: pasto ")
