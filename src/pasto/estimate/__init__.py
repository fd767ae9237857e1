"""Estimation: unbiased samples, sufficient statistics, priors, posteriors and checks of the stated errors."""

from pasto.estimate.candidate_model import CandidateModel, ContrastModel, LevelModel
from pasto.estimate.control_contrast import ContrastPrior, ControlContrasts
from pasto.estimate.covariate_adjustment import CovariateAdjustment
from pasto.estimate.gaussian_process import Kernel
from pasto.estimate.history import CandidateHistory, HistoryPrior
from pasto.estimate.importance_weighting import Sample, add_samples
from pasto.estimate.posterior import IndependentPosterior, JointPosterior, Posterior, Prior, learn_prior
from pasto.estimate.segment_model import fit_segments
from pasto.estimate.segment_posterior import CellCovariance, SegmentPosterior, SegmentSpreads
from pasto.estimate.sufficient_statistics import ControlMeans, Overdispersion, RoundMeans, SufficientStatistics

__all__ = [
    "CandidateHistory",
    "CandidateModel",
    "CellCovariance",
    "ContrastModel",
    "ContrastPrior",
    "ControlContrasts",
    "ControlMeans",
    "CovariateAdjustment",
    "HistoryPrior",
    "IndependentPosterior",
    "JointPosterior",
    "Kernel",
    "LevelModel",
    "Overdispersion",
    "Posterior",
    "Prior",
    "RoundMeans",
    "Sample",
    "SegmentPosterior",
    "SegmentSpreads",
    "SufficientStatistics",
    "add_samples",
    "fit_segments",
    "learn_prior",
]
