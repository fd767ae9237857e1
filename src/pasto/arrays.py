"""Array types that the packages share."""

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
"""An array of doubles; docstrings give its shape, such as (metrics, candidates)."""
