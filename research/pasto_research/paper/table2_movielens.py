"""Table 2 on MovieLens: recall of all movies against recall of documentaries."""

from __future__ import annotations

from pasto.errors import OptionError
from pasto_research.paper.data import Split, busiest, core, split
from pasto_research.paper.data.movielens import load
from pasto_research.paper.experiment import Experiment, Outcome, Size
from pasto_research.paper.models.mult_vae import MultVaeSettings
from pasto_research.paper.table2_replay import play
from pasto_research.paper.table2_results import PaperNumbers, build_outcome

METRICS = ("R@20", "R-D@20")
PRINTED = PaperNumbers(
    data="MovieLens-20M",
    counts=(132_580, 8_936, 6_316_389),
    threshold=0.080,
    probabilistic=(0.424, 0.082),
    single=(0.405, 0.084),
    goal=0.430,
)


QUICK_USERS = 2_000
"""Users of a quick run."""


def run(size: Size) -> Outcome:
    """Prepare the ratings as the paper does, train a model for all and one for documentaries, and mix them."""
    played = play(prepared(size), "documentary", METRICS, settings(size), size)
    return build_outcome("movielens", "Table 2, MovieLens: all movies against documentaries", (played,), PRINTED, size)


def prepared(size: Size) -> Split:
    """Return the pairs for training and for testing."""
    if size.data is None:
        raise OptionError("movielens needs data=, a directory with MovieLens in it")
    pairs = core(load(size.data))
    return split(core(busiest(pairs, QUICK_USERS)) if size.quick else pairs, seed=size.seed)


def settings(size: Size) -> MultVaeSettings:
    """Return the settings of both models.

    >>> settings(Size(runs=1, rounds=1)).epochs
    100
    """
    return MultVaeSettings(epochs=10 if size.quick else 100, seed=size.seed)


EXPERIMENT = Experiment(
    name="movielens",
    summary="Table 2: recall of all movies against documentaries, two Mult-VAEs mixed by α (needs --data)",
    runs=20,
    rounds=200_000,
    quick_runs=3,
    quick_rounds=2_000,
    run=run,
    needs="MovieLens (ratings.csv or ratings.dat with movies, or the official zip)",
)
