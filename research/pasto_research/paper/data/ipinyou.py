"""iPinYou's bidding logs in the forms that research code passes on: click, market price, predicted click rate."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pasto.arrays import FloatArray
from pasto.errors import InputError
from pasto_research.paper.data.readers import Source, numbers


@dataclass(frozen=True, slots=True, eq=False)
class Log:
    """Impressions that one campaign won, (impressions,) each."""

    campaign: str
    clicks: FloatArray
    prices: FloatArray
    """What the winner paid for a thousand impressions, in fen."""
    rates: FloatArray
    """Predicted click rates."""

    @property
    def cost_per_click(self) -> float:
        """Cost of all impressions per click, in fen per thousand."""
        return float(self.prices.sum() / max(1.0, self.clicks.sum()))


def load(directory: str | Path) -> tuple[Log, ...]:
    r"""Return the test log of every campaign in the directory or a direct subdirectory, by number.

    A file is named after its campaign, as in 1458.test.txt or 2997_test.theta.txt, gzipped or not; its columns are
    click, market price, predicted rate and perhaps a time, parted by blanks or tabs.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place:
    ...     _ = Path(place, "1458.test.txt").write_text("0\t80\t0.0001\t14\n1\t50\t0.0002\t14\n")
    ...     (log,) = load(place)
    >>> log.campaign, log.cost_per_click
    ('1458', 130.0)
    """
    place = Path(directory)
    for folder in (place, *sorted(path for path in place.glob("*") if path.is_dir())):
        files = {}
        for path in sorted(folder.glob("*test*.txt*")):
            if named := re.search(r"(?<!\d)(\d{4})(?!\d)", path.name):
                files[named[1]] = path
        if files:
            return tuple(_log(campaign, Source(path)) for campaign, path in sorted(files.items()))
    raise InputError(f"{str(directory)!r} holds no iPinYou logs: files named like 1458.test.txt are needed")


def _log(campaign: str, source: Source) -> Log:
    parts = []
    for block in source.blocks():
        even = block.replace(b"\t", b" ")
        width = even.partition(b"\n")[0].count(b" ") + 1
        if width not in (3, 4):
            raise InputError(f"{str(source)!r} should have 3 or 4 columns, got {width}")
        parts.append(numbers(even, width, source, b" ")[:, :3])
    clicks, prices, rates = np.concatenate(parts).T
    return Log(campaign, clicks, prices, rates)
