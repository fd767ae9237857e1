"""Plan of a study file: facts about its metrics from options, a history or an earlier study, and the printed plan."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pasto.cli.connection import open_api
from pasto.cli.means_file import read_rows
from pasto.cli.output import console, print_json
from pasto.errors import InputError, MeansError, OptionError

if TYPE_CHECKING:
    from pasto.planning import MetricFacts
    from pasto.planning.study_outline import DailySwing
    from pasto.report.lift_records import MetricSpread
    from pasto.service.study_file.spec import StudySpec

MAX_WIDTH = 100
FACT_NAMES = {"mean": "mean", "std": "deviation", "spread": "spread"}
"""Names of facts in a YAML history, and in `MetricFacts`."""
MAX_STEADY_SWING = 0.05
"""Swing of the level between rounds, as a share of it, below which it does not follow the hour."""


def plan_file(
    file: Path,
    *,
    units_per_day: float | None,
    days: float,
    history: str | None,
    from_study: str | None,
    means: tuple[str, ...],
    deviations: tuple[str, ...],
    spreads: tuple[str, ...],
    competition: float,
    daily_swing: str | None,
    seed: int,
    store: str,
    url: str | None,
    key: str | None,
    as_json: bool,
) -> None:
    """Print the plan of a study file."""
    from pasto.planning import make_plan
    from pasto.report.plan_text import render_plan
    from pasto.service.study_file import load_spec
    from pasto.service.study_file.outline import outline_study

    if units_per_day is None:
        raise OptionError(
            "a plan needs the traffic; add --units-per-day with the units that come in a day, such as 2e6"
        )
    spec = load_spec(file)
    facts = _read_own_history(spec)
    swing = daily_swing
    if from_study is not None:
        with open_api(store, url, key) as api:
            measured = api.report(from_study).spreads
        facts = _merge(facts, _read_spreads(spec, from_study, measured))
        swing = swing or _find_swing(measured)
    if history is not None:
        facts = _merge(facts, _read_history(spec, history))
    facts = _merge(facts, _read_options(spec, means, deviations, spreads))
    outline = outline_study(
        spec, units_per_day, facts, daily_swing=cast("DailySwing", swing or "unknown"), competition=competition
    )
    study_plan = make_plan(outline, days=days, seed=seed)
    if as_json:
        print_json(asdict(study_plan))
        return
    screen = console()
    text = render_plan(study_plan, spec.name, min(screen.width, MAX_WIDTH))
    screen.print(text, end="", soft_wrap=True)


def read_metric_numbers(given: Sequence[str], option: str, *, has_metrics: bool = True) -> dict[str, float]:
    """Return numbers by metric from texts such as watch_time=310 or clicked=3%; "" is the name of a plain number.

    >>> read_metric_numbers(["watch_time=310", "clicked=3%"], "--mean")
    {'watch_time': 310.0, 'clicked': 0.03}
    """
    numbers: dict[str, float] = {}
    for text in given:
        name, separator, written = text.rpartition("=")
        if has_metrics != bool(separator):
            example = f"{option} watch_time=310" if has_metrics else f"{option} 310"
            need = "a metric and its number" if has_metrics else "one number, without a metric"
            raise OptionError(f"{option} needs {need}, such as {example}, got {text!r}")
        if name.strip() in numbers:
            raise OptionError(f"{option} is given twice{f' for {name.strip()!r}' if name else ''}; give it once")
        numbers[name.strip()] = _parse_number(written, option, text)
    return numbers


def _parse_number(written: str, option: str, text: str) -> float:
    try:
        number = float(written[:-1]) / 100.0 if written.endswith("%") else float(written)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise OptionError(f"{option} must be a number such as 310 or 3%, got {text!r}")
    return number


def _read_options(
    spec: StudySpec, means: tuple[str, ...], deviations: tuple[str, ...], spreads: tuple[str, ...]
) -> dict[str, MetricFacts]:
    """Return facts from --mean, --std and --spread."""
    from pasto.planning import MetricFacts
    from pasto.service.study_file.outline import aimed_metrics

    mean = read_metric_numbers(means, "--mean")
    deviation = read_metric_numbers(deviations, "--std")
    plain = [text for text in spreads if "=" not in text]
    spread = read_metric_numbers([text for text in spreads if "=" in text], "--spread")
    if plain:
        every = read_metric_numbers(plain, "--spread", has_metrics=False)[""]
        spread = {**dict.fromkeys(aimed_metrics(spec), every), **spread}
    return {
        name: MetricFacts(mean.get(name), deviation.get(name), spread.get(name))
        for name in {**mean, **deviation, **spread}
    }


def _read_history(spec: StudySpec, source: str) -> dict[str, MetricFacts]:
    """Return facts from a file: a table, or YAML with mean, std and spread by metric."""
    if Path(source).suffix.lower() in (".yaml", ".yml"):
        return _read_yaml(source)
    return _read_rows(spec, read_rows(source))


def _read_own_history(spec: StudySpec) -> dict[str, MetricFacts]:
    """Return facts from the history in the study file, if its means have errors."""
    from pasto.planning.metric_history import ERROR_SUFFIX

    rows = [] if spec.history is None else spec.history.to_rows()
    return _read_rows(spec, rows) if rows and any(name.endswith(ERROR_SUFFIX) for name in rows[0]) else {}


def _read_rows(spec: StudySpec, rows: Sequence[Mapping[str, Any]]) -> dict[str, MetricFacts]:
    """Return facts from the rows of a table."""
    from pasto.planning.metric_history import read_metric_history

    halves = {
        name: None if metric.denominator is None else (metric.numerator.name, metric.denominator.name)
        for name, metric in spec.metrics.items()
    }
    return read_metric_history({column: [row[column] for row in rows] for column in rows[0]}, halves)


def _read_yaml(source: str) -> dict[str, MetricFacts]:
    """Return facts from lines such as `watch_time: {mean: 310, std: 420, spread: 2%}`."""
    from pasto.planning import MetricFacts
    from pasto.service.study_file.loader import read_document

    try:
        text = Path(source).read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {source!r}: {error.strerror or error}") from error
    facts = {}
    for name, fields in read_document(text, "yaml").items():
        if not isinstance(fields, Mapping) or not fields or set(fields) - set(FACT_NAMES):
            raise MeansError(f"{name} in {source} must have mean, std or spread, such as {{mean: 310, std: 420}}")
        numbers = {
            FACT_NAMES[label]: _parse_number(str(value), f"{label} of {name}", str(value))
            for label, value in fields.items()
        }
        facts[str(name)] = MetricFacts(**numbers, sources=dict.fromkeys(numbers, "history"))
    return facts


def _read_spreads(spec: StudySpec, study: str, measured: Mapping[str, MetricSpread]) -> dict[str, MetricFacts]:
    """Return facts about the metrics that an earlier study has too."""
    from pasto.planning import MetricFacts

    if not measured:
        raise OptionError(f"study {study!r} has not measured a round yet; give --history, or --mean and --std")
    common = {name: spread for name, spread in measured.items() if name in spec.metrics}
    if not common:
        raise OptionError(
            f"study {study!r} measured {', '.join(measured)}, and {spec.name} has none of them; give --history, or "
            "--mean and --std"
        )
    facts = {}
    for name, spread in common.items():
        numbers = {"mean": spread.mean, "deviation": spread.deviation, "spread": spread.effect_spread}
        known = {label: value for label, value in numbers.items() if value}
        facts[name] = MetricFacts(**known, sources=dict.fromkeys(known, "study"))
    return facts


def _find_swing(measured: Mapping[str, MetricSpread]) -> str | None:
    """Return whether the level of an earlier study's metrics followed the hour; None if its rounds were too long."""
    swings = [spread.swing for spread in measured.values() if spread.swing is not None]
    if not swings:
        return None
    return "seen" if max(swings) > MAX_STEADY_SWING else "none"


def _merge(first: Mapping[str, MetricFacts], second: Mapping[str, MetricFacts]) -> dict[str, MetricFacts]:
    """Return facts of both; the second ones win."""
    merged = dict(first)
    for name, facts in second.items():
        before = merged.get(name)
        if before is None:
            merged[name] = facts
            continue
        sources = dict(before.sources)
        known = {label: value for label in FACT_NAMES.values() if (value := getattr(facts, label)) is not None}
        for label in known:
            sources[label] = facts.sources.get(label, "given")
        merged[name] = replace(before, **known, sources=sources)
    return merged
