"""Every exception of a replay has a sentence."""

from __future__ import annotations

import ast
import inspect

from pasto.report.replay_text import describe_exceptions
from pasto.service.rounds.replay_measurement import RoundRemeasurer


def test_every_exception_that_a_replay_makes_has_its_sentence() -> None:
    tree = ast.parse(inspect.getsource(RoundRemeasurer.exceptions).replace("\n    ", "\n").lstrip())
    kinds = [
        node.targets[0].slice.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Subscript)
        and isinstance(node.targets[0].slice, ast.Constant)
    ]
    assert len(kinds) == 5
    told = list(describe_exceptions({"except": {kind: {"rounds": [3, 7], "units": 2} for kind in kinds}}))
    assert all(sentence.startswith("except ") and "3, 7" in sentence for sentence in told)
    assert len(set(told)) == 5
    assert list(describe_exceptions({"identical": True})) == []
