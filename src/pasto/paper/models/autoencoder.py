"""A trained Mult-VAE (Liang et al. 2018): its weights, and the scores they give; no more than NumPy is needed."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from pasto.paper.models.ranking import Scores

Weights = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Settings:
    """Of one training.

    >>> Settings(epochs=5).hidden
    (600, 200)
    """

    hidden: tuple[int, int] = (600, 200)
    """The hidden layer's width, the same in encoder and decoder, and the code's."""
    dropout: float = 0.5
    """Of the input."""
    kl: float = 0.2
    """The weight of the KL term at its height, β."""
    annealing: int = 20
    """Epochs until β is there, from 0."""
    rate: float = 1e-3
    """Adam's."""
    batch: int = 256
    epochs: int = 100
    patience: int = 10
    """Epochs without a better validation before training ends."""
    held: float = 0.1
    """The share of users that are validated on instead of trained on."""
    seed: int = 1


@dataclass(frozen=True, slots=True, eq=False)
class Autoencoder:
    """The weights of encoder and decoder.

    >>> model = Autoencoder.empty(items=3, hidden=(4, 2))
    >>> model.score(csr_array([[1.0, 0.0, 0.0]])).shape
    (1, 3)
    """

    entry: Weights
    """(items, hidden)."""
    entry_bias: Weights
    code: Weights
    """(hidden, 2 · code): means, then log variances."""
    code_bias: Weights
    back: Weights
    """(code, hidden)."""
    back_bias: Weights
    out: Weights
    """(hidden, items)."""
    out_bias: Weights

    @classmethod
    def empty(cls, items: int, hidden: tuple[int, int]) -> Autoencoder:
        """All zeros: the shapes."""
        wide, narrow = hidden
        shapes = (items, wide), (wide,), (wide, 2 * narrow), (2 * narrow,), (narrow, wide), (wide,), (wide, items)
        return cls(*(np.zeros(shape, dtype=np.float32) for shape in (*shapes, (items,))))

    def score(self, known: csr_array) -> Scores:
        """Logits of all items from users' known ones, (users, items); the code is its mean."""
        norms = np.sqrt(np.maximum(known.multiply(known).sum(axis=1), 1e-12)).astype(np.float32)
        first = np.tanh((known.astype(np.float32) @ self.entry) / norms[:, None] + self.entry_bias)
        narrow = len(self.back)
        code = first @ self.code[:, :narrow] + self.code_bias[:narrow]
        return np.asarray(np.tanh(code @ self.back + self.back_bias) @ self.out + self.out_bias)

    def arrays(self) -> dict[str, Weights]:
        """By name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True, slots=True, eq=False)
class Training:
    """Where a training stands: how it went, and its best model."""

    model: Autoencoder
    validation: tuple[float, ...]
    """After each epoch."""
    done: bool

    @property
    def best(self) -> int:
        """The epoch that validated best, from 1."""
        return int(np.argmax(self.validation)) + 1


def told(settings: Settings) -> dict[str, Any]:
    """Settings as a plain value.

    >>> told(Settings())["hidden"]
    [600, 200]
    """
    return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(settings).items()}


def load(path: Path) -> Training | None:
    """A finished training from its file; None where there is none."""
    if not path.exists():
        return None
    with np.load(path, allow_pickle=False) as kept:
        if not bool(kept["done"]):
            return None
        model = Autoencoder(*(kept[f"best.{field.name}"] for field in fields(Autoencoder)))
        return Training(model, tuple(kept["validation"].tolist()), True)
