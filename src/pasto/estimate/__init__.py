"""From what was measured to what is believed: unbiased samples of the truth and their running mean."""

from pasto.estimate.importance import Sample, add_samples

__all__ = ["Sample", "add_samples"]
