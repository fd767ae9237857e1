"""Advice: the sentence on whether more rounds are worth their cost in traffic."""

from __future__ import annotations

from pasto.durations import format_duration
from pasto.formatting import format_confidence, format_number
from pasto.records import Blend, LearningForecast


def write_advice(blend: Blend, round_seconds: float | None = None) -> str:
    """Return the advice of a blend's outlook, without a capital letter or a full stop; empty without outlook.

    Numbers of rounds are also written as times if the length of a round is given.

    >>> import pasto
    >>> study = pasto.Study([{"w": 0}, {"w": 1}], pasto.maximize("x"), seed=1)
    >>> for _ in range(3):
    ...     assignments = study.ask(parallel=20)
    ...     study.tell(assignments, [[float(a.candidate)] for a in assignments], standard_errors=[[0.1]] * 20)
    >>> write_advice(study.blend(), round_seconds=86_400)
    'stop learning and ship w=1, since mixing gains nothing: 1 more round (1d) is expected to improve x by 0 ...'
    """
    outlook, certificate = blend.outlook, blend.certificate
    if outlook is None or certificate is None:
        return ""
    if certificate.understated_errors:
        metrics = ", ".join(certificate.understated_errors)
        return f"first find out why the standard errors of {metrics} are too small; nothing can be certified until then"
    forecast = outlook.forecast
    expected = _write_forecast(blend, forecast, outlook.deploy_rounds, outlook.round_cost, round_seconds)
    if not certificate.certified:
        wanted = f"that holds every guardrail with {format_confidence(certificate.confidence)}"
        if outlook.decision == "stop":
            return f"stop learning: {_rounds(forecast.rounds, round_seconds)} are not expected to find a blend {wanted}"
        return f"keep learning: there is no blend yet {wanted}"
    if outlook.decision == "learn":
        if forecast.net <= 0.0:
            return "keep learning: most candidates have not been measured yet"
        return f"keep learning: {expected}"
    if outlook.single is not None:
        return f"stop learning and ship {blend.names[outlook.single]}, since mixing gains nothing: {expected}"
    return f"stop learning and confirm the blend: {expected}"


def _write_forecast(
    blend: Blend, forecast: LearningForecast, deploy_rounds: float, round_cost: float, round_seconds: float | None
) -> str:
    goal, unit = blend.goal.removeprefix("-") or "f", "%" if blend.percent else ""
    verb = "is" if forecast.rounds == 1 else "are"
    length = f"each of the {forecast.rounds:,} rounds" if forecast.rounds > 1 else "that round"
    return (
        f"{_rounds(forecast.rounds, round_seconds)} {verb} expected to improve {goal} by "
        f"{format_number(forecast.gain)}{unit} in each of the {_count(deploy_rounds, round_seconds)} of deployment, "
        f"and to cost {format_number(round_cost)}{unit} in {length}"
    )


def _rounds(count: int, round_seconds: float | None) -> str:
    """Return the words for more rounds.

    >>> _rounds(1, None), _rounds(48, 3600.0)
    ('1 more round', '48 more rounds (2d)')
    """
    noun = "round" if count == 1 else "rounds"
    return f"{count:,} more {noun}{_time(count, round_seconds)}"


def _count(count: float, round_seconds: float | None) -> str:
    return f"{format_number(count)} rounds{_time(count, round_seconds)}"


def _time(count: float, round_seconds: float | None) -> str:
    return "" if round_seconds is None else f" ({format_duration(round(count * round_seconds, 3))})"
