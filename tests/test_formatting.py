"""Formatting: a number looks the same in the terminal, in the report and on the dashboard."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from pasto.cli.main import main
from pasto.dashboard.renderer import TEMPLATES
from pasto.formatting import format_confidence, format_lift, format_number, format_percent
from pasto.report.records import Report, TradeoffPoint, TradeoffReport
from pasto.report.sections import build_sections

STATIC = Path(__file__).parents[1] / "src/pasto/dashboard/static"
NUMBER, TEXT = 12345.678, "12,346"
VALUES = (12345.678, 0.031254789, 1234567.8, 100000.5, 1234.5, 2.0, 0.0, -1e-17, -12.345678, 3.12e-5, 99999.6, 2.5e16)


def test_the_terminal_writes_a_number_as_the_formatter_does(tmp_path: Path) -> None:
    means = tmp_path / "means.csv"
    means.write_text(f"name,x,y\na,{NUMBER},1\nb,{NUMBER},2\n")
    result = CliRunner().invoke(main, ["solve", str(means), "--maximize", "x", "--keep", "y >= 1"])
    assert result.exit_code == 0, result.output
    assert TEXT in result.output.split()


def test_the_report_writes_a_number_as_the_formatter_does() -> None:
    point = TradeoffPoint(NUMBER, -NUMBER)
    trade_off = TradeoffReport("watch", "likes", blends=(point,), singles=(), answer=point)
    report = Report("feed", "learning", 1, 1, trade_off=trade_off)
    rows = build_sections(report)[-1].rows
    assert rows[0] == ("the answer", TEXT, f"-{TEXT}")


def test_the_dashboard_writes_a_number_as_the_formatter_does() -> None:
    page = TEMPLATES.from_string("{{ value | number }} {{ share | percent }} {{ share | lift }}")
    assert page.render(value=NUMBER, share=0.0344) == f"{TEXT} 3.4% +3.44%"


@pytest.mark.services
def test_the_browser_follows_the_same_rules() -> None:
    script = (
        (STATIC / "formatting.js").read_text()
        + """
      const values = JSON.parse(process.argv[1]);
      const shares = [0, 0.0004, 0.25, 0.99999, 1];
      process.stdout.write(JSON.stringify({
        numbers: values.map(Formatting.formatNumber), shares: shares.map((share) => Formatting.formatPercent(share)),
        lifts: [3.4444, -2, 1234.5].map(Formatting.formatLift),
        confidences: [0.95, 0.99999].map(Formatting.formatConfidence),
        unknown: [Formatting.formatNumber(null), Formatting.formatPercent(null), Formatting.formatLift(null)],
      }));
    """
    )
    node = shutil.which("node")
    assert node is not None, "the tests marked `services` need Node"
    run = subprocess.run([node, "-e", script, json.dumps(VALUES)], capture_output=True, encoding="utf-8", check=True)
    assert json.loads(run.stdout) == {
        "numbers": [format_number(value) for value in VALUES],
        "shares": [format_percent(share) for share in (0, 0.0004, 0.25, 0.99999, 1)],
        "lifts": [format_lift(lift) for lift in (0.034444, -0.02, 12.345)],
        "confidences": [format_confidence(0.95), format_confidence(0.99999)],
        "unknown": ["–", "–", "–"],
    }
