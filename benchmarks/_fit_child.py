"""Fits of the library in a fresh process, one after the other on data of one shape, with times and compilations.

Usage: _fit_child.py SETTINGS, a JSON object with the keys of `main`. Imports what a user of the estimators would, but
calls `mile.fit` below them, because that takes a progress report.
"""

import json
import os
import sys
import time

from _chains import Clock
from _common import AIRFOIL, N_CHAINS, CompilationLog, regression_data

from mile import Dataset, Gaussian, Mile, MileRegressor, fit
from mile.ensemble.training import Patience, Training
from mile.networks import MLP

IMPORTED = time.time()


def main(
    n_fits: int, n_validation: int, epochs: int, batch_size: int, warmup_steps: int, sampling_steps: int, n_draws: int
) -> None:
    assert MileRegressor  # imported only for the time it takes
    log = CompilationLog()
    n_rows, n_inputs = AIRFOIL
    fits = []
    for seed in range(n_fits):
        x, y = regression_data(n_rows + n_validation, n_inputs, seed)
        clock = Clock()
        began = time.time()
        result = fit(
            Dataset.from_arrays(x[:n_rows], y[:n_rows], x[n_rows:], y[n_rows:]),
            MLP(n_inputs=n_inputs, hidden=(16, 16)),
            Gaussian(),
            sampler=Mile(warmup_steps=warmup_steps, sampling_steps=sampling_steps, n_draws=n_draws),
            training=Training(
                learning_rate=1e-3,
                weight_decay=0.0,
                batch_size=batch_size,
                max_epochs=epochs,
                stopping=Patience(epochs=epochs + 1),  # never stops, but keeps the best weights
            ),
            n_chains=N_CHAINS,
            random_state=seed,
            progress=clock,
        )
        fits.append(
            {
                "seconds": time.time() - began,
                "stages": clock.seconds,
                "first_step": clock.first_advance["phase I"],
                "replaced": int((result.chain_ids >= N_CHAINS).sum()),
            }
            | log.take()
        )
    started = float(os.environ["BENCHMARK_STARTED"])
    print(json.dumps({"imports": IMPORTED - started, "first_step": fits[0]["first_step"] - started, "fits": fits}))


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
