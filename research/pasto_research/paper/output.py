"""Output of experiments: figures as PNG and SVG, claims and tables as Markdown, and everything as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from pasto.report.figures import save_figure
from pasto_research.paper.experiment import Experiment, Outcome


def outcome_document(outcome: Outcome) -> dict[str, Any]:
    """Return the outcome as a plain JSON value; NaN becomes null.

    >>> from pasto_research.paper.experiment import Outcome
    >>> outcome = Outcome("toy-a", "Figure 3", settings={}, claims=(), tables=(), data={"mean": [float("nan")]})
    >>> outcome_document(outcome)["data"]
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
            "figures": list(outcome.figures),
        }
    )
    return value


def write(outcome: Outcome, directory: str | Path) -> list[Path]:
    """Write NAME.json, NAME.md and each figure as PNG and SVG into a directory, and return the files.

    >>> import tempfile
    >>> from pasto_research.paper.experiment import Outcome
    >>> outcome = Outcome("toy-a", "Figure 3", settings={}, claims=(), tables=(), data={})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [path.name for path in write(outcome, folder)]
    ['toy-a.json', 'toy-a.md']
    """
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    record = folder / f"{outcome.name}.json"
    record.write_text(json.dumps(outcome_document(outcome), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    page = folder / f"{outcome.name}.md"
    page.write_text(markdown(outcome), encoding="utf-8")
    written = [record, page]
    for name, draw in outcome.figures.items():
        written += save_figure(draw(), folder / name)
    return written


def markdown(outcome: Outcome) -> str:
    """Return settings, claims and tables as a Markdown page.

    >>> from pasto_research.paper.experiment import Outcome, Table
    >>> table = Table("f", ("rounds", "f"), ((10, 0.5), (20, None)))
    >>> print(markdown(Outcome("toy-a", "Figure 3", settings={"runs": 3}, claims=(), tables=(table,), data={})))
    # Figure 3
    <BLANKLINE>
    runs: 3
    <BLANKLINE>
    ## f
    <BLANKLINE>
    | rounds | f |
    |---|---|
    | 10 | 0.5 |
    | 20 |  |
    <BLANKLINE>
    """
    parts = [f"# {outcome.title}", "; ".join(f"{name}: {value}" for name, value in outcome.settings.items())]
    if outcome.claims:
        words = {True: "holds", False: "does not hold", None: "measured only"}
        claim_rows = [(each.what, each.paper, each.measured, words[each.holds], each.note) for each in outcome.claims]
        parts += [
            "## Claimed and measured",
            markdown_table(("what", "the paper", "measured", "verdict", "note"), claim_rows),
        ]
    for table in outcome.tables:
        parts += [f"## {table.title}", markdown_table(table.header, table.rows)]
    return "\n\n".join(parts) + "\n"


def markdown_table(header: Sequence[str], cells: Sequence[Sequence[str | float | int | None]]) -> str:
    """Return a table in Markdown.

    >>> print(markdown_table(("rounds", "f"), [(1_000, 0.5)]))
    | rounds | f |
    |---|---|
    | 1,000 | 0.5 |
    """
    lines = [header, ["---"] * len(header), *cells]
    texts = ["|".join(f" {_cell(cell)} " if row is not lines[1] else str(cell) for cell in row) for row in lines]
    return "\n".join(f"|{line}|" for line in texts)


def _cell(cell: str | float | int | None) -> str:
    match _plain(cell):
        case None:
            return ""
        case int() as integer:
            return f"{integer:,}"
        case float() as real:
            return f"{real:.5g}"
    return str(cell).replace("|", "\\|")


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


VERDICTS = {True: "holds", False: "does not hold", None: "measured only"}


def write_index(directory: str | Path, experiments: Iterable[Experiment]) -> Path:
    """Write index.md from the numbers in the directory, and return its path.

    >>> import tempfile
    >>> from pasto_research.paper import EXPERIMENTS
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = write_index(folder, [EXPERIMENTS["toy-a"]]).read_text()
    >>> print(page.splitlines()[-1])
    | Figure 3 | `pasto paper toy-a` | not run |  |  |
    """
    folder = Path(directory)
    documents = [(experiment, _numbers(folder, experiment)) for experiment in experiments]
    overview = markdown_table(
        ("in the paper", "command", "claims that hold", "tables and numbers", "figures"),
        [_row(experiment, document) for experiment, document in documents],
    )
    parts = ["# The paper's claims and what was measured", overview]
    for experiment, document in documents:
        if document is not None:
            parts += _section(experiment, document)
    page = folder / "index.md"
    page.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    return page


def anchor(title: str) -> str:
    """Return the anchor of a page's heading.

    >>> anchor("Table 2: MovieLens-1M (λ = 5)")
    'table-2-movielens-1m-λ--5'
    """
    letters = "".join(letter for letter in title.lower() if letter.isalnum() or letter in " -_")
    return letters.replace(" ", "-")


def _numbers(folder: Path, experiment: Experiment) -> dict[str, Any] | None:
    path = folder / f"{experiment.name}.json"
    if not path.exists():
        return None
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return document


def _row(experiment: Experiment, document: dict[str, Any] | None) -> Sequence[str]:
    name, command = experiment.name, f"`pasto paper {experiment.name}`"
    if document is None:
        return (experiment.place, command, "not run", "", "")
    verdicts = [claim["holds"] for claim in document["claims"] if claim["holds"] is not None]
    files = f"[tables]({name}.md), [numbers]({name}.json)"
    figures = ", ".join(f"[{figure}]({figure}.png)" for figure in document["figures"])
    return (
        f"[{experiment.place}](#{anchor(document['title'])})",
        command,
        f"{sum(verdicts)} of {len(verdicts)}",
        files,
        figures,
    )


def _section(experiment: Experiment, document: dict[str, Any]) -> list[str]:
    claims = [
        (claim["what"], claim["paper"], claim["measured"], VERDICTS[claim["holds"]]) for claim in document["claims"]
    ]
    tables = [f"- [{table['title']}]({experiment.name}.md#{anchor(table['title'])})" for table in document["tables"]]
    parts = (
        [f"## {document['title']}", markdown_table(("claim", "the paper", "measured", "verdict"), claims)]
        if claims
        else []
    )
    parts += ["\n".join(tables)] if tables else []
    return parts + [f"![{figure}]({figure}.png)" for figure in document["figures"]]
