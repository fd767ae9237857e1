"""An outcome on disk: figures as PNG and SVG, and everything else as JSON."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from pasto.paper.experiment import Outcome
from pasto.report.figures import save


def saved(outcome: Outcome) -> dict[str, Any]:
    """The outcome as a plain JSON value: settings, claims, tables and curves; NaN and infinity become null.

    >>> from pasto.paper.experiment import Outcome
    >>> saved(Outcome("toy-a", "Figure 3", settings={}, claims=(), tables=(), data={"mean": [float("nan")]}))["data"]
    {'mean': [None]}
    """
    value: dict[str, Any] = _plain(
        {
            "name": outcome.name,
            "title": outcome.title,
            "settings": outcome.settings,
            "claims": [asdict(claim) for claim in outcome.claims],
            "tables": [asdict(table) for table in outcome.tables],
            "data": outcome.data,
        }
    )
    return value


def write(outcome: Outcome, directory: str | Path) -> list[Path]:
    """Write NAME.json and each figure as PNG and SVG into a directory, and say which files.

    >>> import tempfile
    >>> from pasto.paper.experiment import Outcome
    >>> outcome = Outcome("toy-a", "Figure 3", settings={}, claims=(), tables=(), data={})
    >>> with tempfile.TemporaryDirectory() as place:
    ...     [path.name for path in write(outcome, place)]
    ['toy-a.json']
    """
    place = Path(directory)
    place.mkdir(parents=True, exist_ok=True)
    record = place / f"{outcome.name}.json"
    record.write_text(json.dumps(saved(outcome), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    written = [record]
    for name, draw in outcome.figures.items():
        written += save(draw(), place / name)
    return written


def _plain(value: Any) -> Any:
    match value:
        case dict():
            return {str(key): _plain(part) for key, part in value.items()}
        case np.ndarray():
            return _plain(value.tolist())
        case list() | tuple():
            return [_plain(part) for part in value]
        case bool() | np.bool_():
            return bool(value)
        case float() | np.floating():
            return float(value) if np.isfinite(value) else None
        case np.integer():
            return int(value)
    return value
