"""From what was measured to what is believed: unbiased samples, sufficient statistics, priors and posteriors."""

from pasto.estimate.belief import Belief, Independent
from pasto.estimate.evidence import Evidence
from pasto.estimate.importance import Sample, add_samples
from pasto.estimate.prior import Prior, learn_prior

__all__ = ["Belief", "Evidence", "Independent", "Prior", "Sample", "add_samples", "learn_prior"]
