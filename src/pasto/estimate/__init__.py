"""From what was measured to what is believed: unbiased samples, sufficient statistics, priors and posteriors."""

from pasto.estimate.belief import Belief, Independent
from pasto.estimate.contrast import Contrasts, Control
from pasto.estimate.evidence import Evidence, shrunk
from pasto.estimate.importance import Sample, add_samples
from pasto.estimate.joint import Joint
from pasto.estimate.kernel import Kernel
from pasto.estimate.knowledge import Absolute, Contrasted, Knowledge, Reading
from pasto.estimate.prior import Prior, learn_prior

__all__ = [
    "Absolute",
    "Belief",
    "Contrasted",
    "Contrasts",
    "Control",
    "Evidence",
    "Independent",
    "Joint",
    "Kernel",
    "Knowledge",
    "Prior",
    "Reading",
    "Sample",
    "add_samples",
    "learn_prior",
    "shrunk",
]
