"""Table 3 on real feedback: ensemble-sort weights of a short-video feed, likes and forwards kept within 2 %."""

from __future__ import annotations

from pasto.errors import OptionError
from pasto_research.paper.data.kuairand import load
from pasto_research.paper.experiment import Experiment, Outcome, Size
from pasto_research.paper.table3_replay import play
from pasto_research.paper.table3_results import build_outcome


def run(size: Size) -> Outcome:
    """Train on April's impressions, re-rank those of May."""
    if size.data is None:
        raise OptionError("content needs data=, a directory with KuaiRand in it")
    earlier, later = load(size.data)
    return build_outcome(play(earlier, later, size), size)


EXPERIMENT = Experiment(
    name="content",
    summary="Table 3: ensemble-sort weights on KuaiRand's impressions, likes and forwards kept (needs --data)",
    runs=20,
    rounds=50_000,
    quick_runs=3,
    quick_rounds=100,
    run=run,
    needs="KuaiRand-Pure (val.parquet, test.parquet and the tables of users and their histories)",
)
