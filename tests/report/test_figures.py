from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pasto.errors import MissingExtraError
from pasto.report import figures


def test_without_matplotlib_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match=r"pip install '\.\[plots\]'"):
        figures.new_figure()


def test_a_figure_is_written_in_two_formats_and_names_may_have_dots(tmp_path: Path) -> None:
    sheet, (axes,) = figures.new_figure()
    figures.draw_curve(axes, [1, 10], [0.1, 0.2], name="mean", colour=figures.COLOURS[0], low=[0, 0], high=[1, 1])
    figures.draw_level(axes, 0.15, "target")
    figures.rounds_axis(axes, 1, 10)
    figures.label_axes(axes, title="title", x="rounds", y="f")
    figures.draw_legend(axes, "upper left")
    image, drawing = figures.save_figure(sheet, tmp_path / "sigma-0.1")
    assert (image.name, drawing.name) == ("sigma-0.1.png", "sigma-0.1.svg")
    assert image.read_bytes()[:4] == b"\x89PNG"
    assert "<svg" in drawing.read_text(encoding="utf-8")


def test_drawing_leaves_matplotlibs_own_settings_alone() -> None:
    script = (
        "import sys, matplotlib, tempfile, pathlib\n"
        "def settings():  # asking for the backend would choose one\n"
        "    return {key: matplotlib.rcParams[key] for key in matplotlib.rcParams if key != 'backend'}\n"
        "before = settings()\n"
        "from pasto.report import figures\n"
        "sheet, _ = figures.new_figure(columns=2)\n"
        "with tempfile.TemporaryDirectory() as place:\n"
        "    figures.save_figure(sheet, pathlib.Path(place) / 'x')\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
        "assert settings() == before\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_naming_the_module_does_not_load_matplotlib() -> None:
    script = "import sys, pasto_research.paper\nassert 'matplotlib' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True)
