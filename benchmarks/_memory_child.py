"""Peak memory of one fit through the estimator, above what the process held once imports and data were in place.

Usage: _memory_child.py N_ROWS N_INPUTS DTYPE.
"""

import json
import resource
import sys
import time
from pathlib import Path

import jax
import numpy as np

from mile import MileRegressor, native


def main(n_rows: int, n_inputs: int, dtype: str) -> None:
    jax.devices()  # the client's own memory belongs to the imports
    # Drawn in the final precision, so that making the data leaves no peak behind.
    rng = np.random.default_rng(0)
    x = rng.standard_normal((n_rows, n_inputs), np.dtype(dtype))
    y = rng.standard_normal(n_rows, np.dtype(dtype))
    y += x[:, 0]
    before = resident()
    began = time.perf_counter()
    MileRegressor(
        n_chains=2,
        max_epochs=2,
        batch_size=65_536,
        warmup_steps=20,
        sampling_steps=10,
        n_draws=2,
        random_state=0,
    ).fit(x, y)
    seconds = time.perf_counter() - began
    print(json.dumps({"above": peak() - before, "kernel": native.kernel_name(), "seconds": seconds}))


def peak() -> float:
    """Return the largest resident size so far, in megabytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return 1e-6 * unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def resident() -> float:
    """Return the resident size now, in megabytes."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return 1e-6 * pages * resource.getpagesize()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
