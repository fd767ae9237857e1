"""Flows of the platform run through a bounded number of files, so that a reader can follow them."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parent.parent / "tools" / "trace_flows.py"
MAX_FILES = {"close a round": 45, "build a report": 50, "replay": 48, "ask/tell": 15}
"""Files that each flow may run through; lower a number whenever a flow gets shorter."""


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("trace_flows", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["trace_flows"] = module
    spec.loader.exec_module(module)
    return module


def test_flows_run_through_few_files(tool: ModuleType) -> None:
    traces = {trace.name: trace for trace in tool.trace_flows()}
    assert traces.keys() == MAX_FILES.keys()
    too_long = {name: trace.files for name, trace in traces.items() if len(trace.files) > MAX_FILES[name]}
    assert not too_long
    assert "pasto.service.rounds.close" in traces["close a round"].files


def test_a_replay_runs_the_code_of_the_close(tool: ModuleType) -> None:
    traces = {trace.name: trace for trace in tool.trace_flows()}
    names = {code.co_name for code, module in traces["replay"].functions.items() if module.endswith("rounds.close")}
    assert {"judge_guardrails", "compute_close", "learn_rounds", "publish_next"} <= names
