"""Mult-VAE (Liang et al. 2018): weights and scores with NumPy alone, and training with PyTorch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from pasto.errors import MissingExtraError
from pasto.sim import Progress
from pasto_research.paper.models.ranking import Scores, batches

Weights = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class MultVaeSettings:
    """Settings of one training.

    >>> MultVaeSettings(epochs=5).hidden
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
        """Return weights of zero in the right shapes."""
        wide, narrow = hidden
        shapes = (items, wide), (wide,), (wide, 2 * narrow), (2 * narrow,), (narrow, wide), (wide,), (wide, items)
        return cls(*(np.zeros(shape, dtype=np.float32) for shape in (*shapes, (items,))))

    def score(self, history: csr_array) -> Scores:
        """Return logits of all items from users' known ones, (users, items); the code is its mean."""
        norms = np.sqrt(np.maximum(history.multiply(history).sum(axis=1), 1e-12)).astype(np.float32)
        first = np.tanh((history.astype(np.float32) @ self.entry) / norms[:, None] + self.entry_bias)
        narrow = len(self.back)
        code = first @ self.code[:, :narrow] + self.code_bias[:narrow]
        return np.asarray(np.tanh(code @ self.back + self.back_bias) @ self.out + self.out_bias)

    def arrays(self) -> dict[str, Weights]:
        """Return the weights by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True, slots=True, eq=False)
class TrainingResult:
    """Result of a training: validation after each epoch, and the best model."""

    model: Autoencoder
    validation: tuple[float, ...]
    """After each epoch."""
    done: bool

    @property
    def best(self) -> int:
        """The epoch that validated best, from 1."""
        return int(np.argmax(self.validation)) + 1


def settings_document(settings: MultVaeSettings) -> dict[str, Any]:
    """Return settings as a plain value.

    >>> settings_document(MultVaeSettings())["hidden"]
    [600, 200]
    """
    return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(settings).items()}


def load(path: Path) -> TrainingResult | None:
    """Return a finished training from its file; None if there is none."""
    if not path.exists():
        return None
    with np.load(path, allow_pickle=False) as arrays:
        if not bool(arrays["done"]):
            return None
        model = Autoencoder(*(arrays[f"best.{field.name}"] for field in fields(Autoencoder)))
        return TrainingResult(model, tuple(arrays["validation"].tolist()), True)


LOOKED_AT = 100
"""Places of the list that validation looks at."""


def train(
    history: csr_array,
    held_out: csr_array,
    settings: MultVaeSettings,
    *,
    path: Path | None = None,
    progress: Progress | None = None,
    label: str = "",
    threads: int = 1,
) -> TrainingResult:
    """Learn to give back `wanted` weights, (users, items), from `known` items of the same users.

    A share of the users is held out: of what each of them wants a fifth is hidden, and after every epoch the ranking of
    the hidden is scored by its weighted NDCG. With a path the state is kept there after every epoch, and a training
    that was cut short goes on from it to the same end, bit for bit.
    """
    torch = _torch()
    if path is not None and (finished := load(path)) is not None:
        return finished
    users = np.flatnonzero(np.diff(held_out.indptr))
    order = np.random.default_rng([settings.seed, 0]).permutation(users)
    held = max(1, round(settings.held * len(order)))
    examined, taught = np.sort(order[:held]), np.sort(order[held:])
    visible, hidden = hide_some(history[examined], held_out[examined], settings.seed)
    with _threads(torch, threads):
        state = _State(torch, settings, history.shape[1])
        if path is not None and path.exists():
            state.restore(path)
        for epoch in range(len(state.validation), settings.epochs):
            state.epoch(epoch, history, held_out, taught)
            state.examine(ndcg(state.model().score(visible), visible, hidden))
            over = state.stale >= settings.patience or epoch + 1 == settings.epochs
            if path is not None:
                state.keep(path, done=over)
            if progress is not None:
                progress(label, settings.epochs if over else epoch + 1, settings.epochs)
            if over:
                break
    return TrainingResult(state.best_model(), tuple(state.validation), True)


def hide_some(history: csr_array, held_out: csr_array, seed: int, share: float = 0.2) -> tuple[csr_array, csr_array]:
    """Split off a random fifth of each user's wanted items, at least one, and return the known and the hidden ones."""
    sizes = np.diff(held_out.indptr)
    users = np.repeat(np.arange(len(sizes)), sizes)
    draws = np.random.default_rng([seed, 1]).random(len(users))
    order = np.lexsort((draws, users))
    places = np.arange(len(users)) - np.repeat(held_out.indptr[:-1], sizes)
    chosen = np.sort(order[places < np.repeat(np.maximum(1, np.round(share * sizes)), sizes)])
    hidden = csr_array((held_out.data[chosen], (users[chosen], held_out.indices[chosen])), shape=held_out.shape)
    mask = hidden.copy()
    mask.data = np.ones_like(mask.data)
    visible = csr_array(history - history.multiply(mask))
    visible.eliminate_zeros()
    visible.sort_indices()
    return visible, hidden


def ndcg(scores: Scores, history: csr_array, held_out: csr_array, top: int = LOOKED_AT) -> float:
    """Return the normalised discounted cumulative gain (NDCG), averaged over users.

    >>> import numpy as np
    >>> scores = np.array([[3.0, 2.0, 1.0]], np.float32)
    >>> ndcg(scores, csr_array((1, 3)), csr_array([[0.0, 1.0, 0.0]]), top=2)    # second of two: 1/log2(3)
    0.6309
    """
    discounts = 1.0 / np.log2(np.arange(2, min(top, scores.shape[1]) + 2))
    found: list[float] = []
    for user in range(len(scores)):
        row = scores[user]
        row[history.indices[history.indptr[user] : history.indptr[user + 1]]] = -np.inf
        own = slice(held_out.indptr[user], held_out.indptr[user + 1])
        weights = np.zeros(len(row))
        weights[held_out.indices[own]] = held_out.data[own]
        best = np.sort(held_out.data[own])[::-1][: len(discounts)]
        found.append(float(weights[_first(row, len(discounts))] @ discounts) / float(best @ discounts[: len(best)]))
    return round(float(np.mean(found)), 4)


class _State:
    """Network, optimiser and history of one training."""

    def __init__(self, torch: Any, settings: MultVaeSettings, items: int) -> None:
        self.torch, self.settings = torch, settings
        chance = np.random.default_rng([settings.seed, 2])
        self.weights = [
            torch.nn.Parameter(torch.from_numpy(_initial(array, chance)))
            for array in Autoencoder.empty(items, settings.hidden).arrays().values()
        ]
        self.adam = torch.optim.Adam(self.weights, lr=settings.rate)
        self.validation: list[float] = []
        self.stale = 0
        self.best = [weight.detach().clone() for weight in self.weights]

    def epoch(self, number: int, history: csr_array, held_out: csr_array, users: Any) -> None:
        """Train one pass over the users, in an order and with a dropout that seed and epoch decide."""
        torch, settings = self.torch, self.settings
        chance = np.random.default_rng([settings.seed, 3, number])
        noise = torch.Generator().manual_seed(int(chance.integers(2**62)))
        order = chance.permutation(users)
        steps = -(-len(order) // settings.batch)
        for step, rows in enumerate(batches(len(order), settings.batch)):
            beta = settings.kl * min(1.0, (number + step / steps) / max(settings.annealing, 1e-9))
            loss = self._loss(history[order[rows]], held_out[order[rows]], beta, noise)
            self.adam.zero_grad(set_to_none=True)
            loss.backward()
            self.adam.step()

    def _loss(self, history: csr_array, held_out: csr_array, beta: float, noise: Any) -> Any:
        torch = self.torch
        entry, entry_bias, code, code_bias, back, back_bias, out, out_bias = self.weights
        sizes = np.diff(history.indptr)
        retained = torch.rand(len(history.indices), generator=noise) >= self.settings.dropout
        scale = np.repeat(1.0 / np.sqrt(np.maximum(sizes, 1)), sizes).astype(np.float32)
        values = torch.from_numpy(scale) * retained / (1.0 - self.settings.dropout)
        first = torch.nn.functional.embedding_bag(
            torch.from_numpy(history.indices.astype(np.int64)),
            entry,
            torch.from_numpy(history.indptr[:-1].astype(np.int64)),
            mode="sum",
            per_sample_weights=values,
        )
        hidden = torch.tanh(first + entry_bias) @ code + code_bias
        mean, spread = hidden.chunk(2, dim=1)
        drawn = mean + torch.exp(0.5 * spread) * torch.randn(mean.shape, generator=noise)
        logits = torch.tanh(drawn @ back + back_bias) @ out + out_bias
        logs = torch.log_softmax(logits, dim=1)
        users = torch.from_numpy(np.repeat(np.arange(held_out.shape[0]), np.diff(held_out.indptr)))
        likely = logs[users, torch.from_numpy(held_out.indices.astype(np.int64))]
        weight = torch.from_numpy(held_out.data.astype(np.float32))
        divergence = 0.5 * (mean**2 + spread.exp() - 1.0 - spread).sum()
        return (beta * divergence - (likely * weight).sum()) / held_out.shape[0]

    def examine(self, score: float) -> None:
        """Record a validation, and the weights if it is the best."""
        if not self.validation or score > max(self.validation):
            self.best, self.stale = [weight.detach().clone() for weight in self.weights], 0
        else:
            self.stale += 1
        self.validation.append(score)

    def model(self) -> Autoencoder:
        """Return the current network."""
        return Autoencoder(*(weight.detach().numpy() for weight in self.weights))

    def best_model(self) -> Autoencoder:
        """Return the network with the best validation."""
        return Autoencoder(*(weight.numpy().copy() for weight in self.best))

    def keep(self, path: Path, *, done: bool) -> None:
        """Write everything, or, once the training is done, no more than its best model."""
        names = [field.name for field in fields(Autoencoder)]
        arrays: dict[str, Any] = {f"best.{name}": tensor.numpy() for name, tensor in zip(names, self.best, strict=True)}
        if not done:
            for name, weight in zip(names, self.weights, strict=True):
                moments = self.adam.state[weight]
                arrays |= {f"now.{name}": weight.detach().numpy()}
                arrays |= {f"{part}.{name}": moments[part].numpy() for part in ("exp_avg", "exp_avg_sq", "step")}
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(".partial.npz")
        np.savez(partial, done=done, stale=self.stale, validation=np.array(self.validation), **arrays)
        partial.replace(path)

    def restore(self, path: Path) -> None:
        """Go on from what `keep` wrote."""
        with np.load(path, allow_pickle=False) as arrays:
            for place, field in enumerate(fields(Autoencoder)):
                weight = self.weights[place]
                weight.data = self.torch.from_numpy(arrays[f"now.{field.name}"])
                self.best[place] = self.torch.from_numpy(arrays[f"best.{field.name}"])
                self.adam.state[weight] = {
                    part: self.torch.from_numpy(np.asarray(arrays[f"{part}.{field.name}"]))
                    for part in ("step", "exp_avg", "exp_avg_sq")
                }
            self.stale = int(arrays["stale"])
            self.validation = arrays["validation"].tolist()


def _initial(array: Any, chance: np.random.Generator) -> Any:
    """Return Xavier's normal weights; biases start near zero."""
    spread = np.sqrt(2.0 / sum(array.shape)) if array.ndim == 2 else 1e-3
    return (spread * chance.standard_normal(array.shape)).astype(np.float32)


def _first(row: Any, count: int) -> Any:
    best = np.argpartition(-row, count - 1)[:count] if count < len(row) else np.arange(len(row))
    return best[np.argsort(-row[best], kind="stable")]


def _torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise MissingExtraError("training a Mult-VAE needs torch", "vae") from error
    return torch


@contextmanager
def _threads(torch: Any, count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
