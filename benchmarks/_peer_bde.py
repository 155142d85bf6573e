"""One fit of sklearn-contrib-bde in its own environment, with the time of its parts.

Usage: _peer_bde.py SETTINGS, a JSON object with the keys of `main`.
"""

import json
import sys
import time
from typing import Any

import jax
from _common import AIRFOIL, N_CHAINS, CompilationLog, regression_data
from bde import BdeRegressor  # pyright: ignore[reportMissingImports]
from bde.bde_builder import BdeBuilder  # pyright: ignore[reportMissingImports]


def main(epochs: int, n_validation: int, warmup_steps: int, sampling_steps: int, n_draws: int) -> None:
    log = CompilationLog()
    ensemble: dict[str, float] = {}
    fit_members = BdeBuilder.fit_members

    def timed(builder: BdeBuilder, *arguments: Any, **options: Any) -> Any:
        began = time.time()
        members = fit_members(builder, *arguments, **options)
        jax.block_until_ready(builder.params_e)
        ensemble.update(log.take(), seconds=time.time() - began)
        return members

    BdeBuilder.fit_members = timed
    n_rows, n_inputs = AIRFOIL
    x, y = regression_data(n_rows, n_inputs)
    # It samples from all rows it is given and sets some of them aside while it trains; weight_decay is left alone,
    # because its fit always trains with plain Adam. Without a patience it would start the chains from untrained
    # weights; one that is never reached keeps the best weights of all epochs.
    model = BdeRegressor(
        n_members=N_CHAINS,
        hidden_layers=[16, 16],
        epochs=epochs,
        patience=epochs + 1,
        validation_split=n_validation / n_rows,
        lr=1e-3,
        warmup_steps=warmup_steps,
        n_samples=sampling_steps,
        n_thinning=sampling_steps // n_draws,
    )
    began = time.time()
    model.fit(x, y)
    jax.block_until_ready(model.positions_eT_)
    result = {"seconds": time.time() - began, "devices": jax.device_count(), "ensemble": ensemble} | log.take()
    print("\n" + json.dumps(result))


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
