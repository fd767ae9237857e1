"""Table 2 on Amazon reviews: recall of all products against the price of what is hit."""

from __future__ import annotations

from pathlib import Path

from pasto.errors import OptionError
from pasto_research.paper.data import Interactions, busiest, core, priced, split
from pasto_research.paper.data.amazon import holds, load
from pasto_research.paper.experiment import Experiment, Outcome, Size
from pasto_research.paper.models.mult_vae import MultVaeSettings
from pasto_research.paper.table2_replay import play
from pasto_research.paper.table2_results import PaperNumbers, build_outcome

METRICS = ("R@20", "REV@20")
PRINTED = PaperNumbers(
    data="Amazon-Book",
    counts=(93_976, 25_896, 964_363),
    threshold=4.28,
    probabilistic=(0.284, 4.31),
    single=(0.279, 4.31),
    goal=0.286,
)
HIDDEN = (200, 100)
"""Narrower than for movies: a reviewer has nine products, not a hundred movies."""
QUICK_USERS = 2_000
"""Users of a quick run."""


def run(size: Size) -> Outcome:
    """Run the experiment on every Amazon data set in the directory, with the items' prices as weights."""
    if size.data is None:
        raise OptionError("amazon needs data=, a directory with Amazon reviews and prices in it")
    settings = MultVaeSettings(hidden=HIDDEN, epochs=20 if size.quick else 60, patience=5, seed=size.seed)
    played = tuple(
        play(split(_kept(pairs, size), seed=size.seed), "price", METRICS, settings, size) for pairs in found(size.data)
    )
    return build_outcome("amazon", "Table 2, Amazon: recall against revenue", played, PRINTED, size)


def _kept(pairs: Interactions, size: Size) -> Interactions:
    core_pairs = core(priced(pairs, "price"))
    return core(busiest(core_pairs, QUICK_USERS)) if size.quick else core_pairs


def found(directory: Path) -> tuple[Interactions, ...]:
    """Return every Amazon data set in the directory itself or in the ones right below it."""
    places = (directory, *sorted(path for path in directory.glob("*") if path.is_dir()))
    return tuple(load(place) for place in places if holds(place)) or (load(directory),)


EXPERIMENT = Experiment(
    name="amazon",
    summary="Table 2: recall against revenue on Amazon reviews, two Mult-VAEs mixed by α (needs --data)",
    runs=20,
    rounds=200_000,
    quick_runs=3,
    quick_rounds=2_000,
    run=run,
    needs="Amazon reviews with prices (ratings or reviews and meta_*.json, or pairs and item_description.tsv)",
)
