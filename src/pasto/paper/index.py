"""The page that leads from the paper's claims to the tables and figures in a directory."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pasto.paper.experiment import Experiment
from pasto.paper.write import rows

VERDICTS = {True: "holds", False: "does not hold", None: "measured only"}


def write_index(directory: str | Path, experiments: Iterable[Experiment]) -> Path:
    """Write index.md from the numbers that are in the directory, whenever they were written, and say where it is.

    >>> import tempfile
    >>> from pasto.paper import EXPERIMENTS
    >>> with tempfile.TemporaryDirectory() as place:
    ...     page = write_index(place, [EXPERIMENTS["toy-a"]]).read_text()
    >>> print(page.splitlines()[-1])
    | Figure 3 | `pasto paper toy-a` | not run |  |  |
    """
    place = Path(directory)
    found = [(experiment, _numbers(place, experiment)) for experiment in experiments]
    overview = rows(
        ("in the paper", "command", "claims that hold", "tables and numbers", "figures"),
        [_row(experiment, told) for experiment, told in found],
    )
    parts = ["# The paper's claims and what was measured", overview]
    for experiment, told in found:
        if told is not None:
            parts += _section(experiment, told)
    page = place / "index.md"
    page.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    return page


def anchor(title: str) -> str:
    """The name under which a page's heading can be linked to.

    >>> anchor("Table 2: MovieLens-1M (λ = 5)")
    'table-2-movielens-1m-λ--5'
    """
    kept = "".join(letter for letter in title.lower() if letter.isalnum() or letter in " -_")
    return kept.replace(" ", "-")


def _numbers(place: Path, experiment: Experiment) -> dict[str, Any] | None:
    path = place / f"{experiment.name}.json"
    if not path.exists():
        return None
    told: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return told


def _row(experiment: Experiment, told: dict[str, Any] | None) -> Sequence[str]:
    name, command = experiment.name, f"`pasto paper {experiment.name}`"
    if told is None:
        return (experiment.place, command, "not run", "", "")
    verdicts = [claim["holds"] for claim in told["claims"] if claim["holds"] is not None]
    files = f"[tables]({name}.md), [numbers]({name}.json)"
    figures = ", ".join(f"[{figure}]({figure}.png)" for figure in told["figures"])
    return (
        f"[{experiment.place}](#{anchor(told['title'])})",
        command,
        f"{sum(verdicts)} of {len(verdicts)}",
        files,
        figures,
    )


def _section(experiment: Experiment, told: dict[str, Any]) -> list[str]:
    claims = [(one["what"], one["paper"], one["measured"], VERDICTS[one["holds"]]) for one in told["claims"]]
    tables = [f"- [{one['title']}]({experiment.name}.md#{anchor(one['title'])})" for one in told["tables"]]
    parts = [f"## {told['title']}", rows(("claim", "the paper", "measured", "verdict"), claims)] if claims else []
    parts += ["\n".join(tables)] if tables else []
    return parts + [f"![{figure}]({figure}.png)" for figure in told["figures"]]
