"""Cache of arrays that take long to compute, on disk by all their inputs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Cache:
    """Cache directory; without one, everything is computed again.

    >>> Cache(None).arrays("squares", {"upto": 3}, lambda: {"squares": np.arange(3) ** 2})["squares"]
    array([0, 1, 4])
    """

    directory: Path | None

    def path(self, name: str, key: Mapping[str, Any]) -> Path | None:
        """Return the path of the file for a key."""
        if self.directory is None:
            return None
        digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()
        return self.directory / f"{name}-{digest[:16]}.npz"

    def arrays(self, name: str, key: Mapping[str, Any], make: Callable[[], Arrays]) -> Arrays:
        """Return arrays by name from their file, or compute and store them."""
        path = self.path(name, key)
        if path is not None and path.exists():
            with np.load(path, allow_pickle=False) as stored:
                return {field: stored[field] for field in stored.files}
        computed = make()
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            partial = path.with_suffix(".partial.npz")
            np.savez(partial, allow_pickle=False, **computed)
            partial.replace(path)
        return computed


def fingerprint(*arrays: NDArray[Any]) -> str:
    """Return a short fingerprint of the contents of arrays.

    >>> fingerprint(np.arange(3)) == fingerprint(np.arange(3)), fingerprint(np.arange(3)) == fingerprint(np.arange(4))
    (True, False)
    """
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:16]
