"""Exceptions of a replay: each has a sentence."""

from __future__ import annotations

from typing import get_args

from pasto.report.replay_report import ExceptionKind, ReplayException, ReplayReport, describe_exceptions


def test_every_exception_that_a_replay_makes_has_its_sentence() -> None:
    kinds = get_args(ExceptionKind)
    exceptions = {kind: ReplayException((7, 3), units=2) for kind in kinds}
    sentences = list(describe_exceptions(ReplayReport(True, 9, None, exceptions)))
    assert len(set(sentences)) == len(kinds) == 5
    assert all(sentence.startswith("except ") and "3, 7" in sentence for sentence in sentences)
    assert list(describe_exceptions(ReplayReport(True, 9, None))) == []
