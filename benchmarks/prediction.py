"""Prediction with 12,000 draws of a 5-16-16-2 network: one row, moments of many rows, quantiles.

Moments are compared with the machine's sgemm peak, in turns; the arithmetic counted is that of the forward passes
alone. Quantiles are compared with roots of the mixture's distribution function in float64.
"""

import statistics

import numpy as np
from _common import AIRFOIL, Row, command_line, interleave, progress, seconds_of, sgemm_peak
from scipy.optimize import brentq
from scipy.special import ndtr

from mile.features.numbers import Standardizer
from mile.likelihoods import Gaussian
from mile.networks import MLP
from mile.predict import Predictive

N_DRAWS = 12_000
N_ROWS = 100_000
LONGEST_RUN = 20.0  # seconds; where all rows take longer, fewer are used
LEVELS = (0.05, 0.5, 0.95)
CHECKED_ROWS = 5
NETWORK = MLP(n_inputs=AIRFOIL[1], hidden=(16, 16))


def main(quick: bool = False) -> list[Row]:
    rng = np.random.default_rng(0)
    draws = 0.3 * rng.standard_normal((N_DRAWS, NETWORK.dimension), np.float32)
    x = rng.standard_normal((N_ROWS, NETWORK.n_inputs), np.float32)

    def predictive(n_rows: int) -> Predictive:
        return Predictive(NETWORK, Gaussian(), draws, x[:n_rows], Standardizer.identity())

    def moments(n_rows: int) -> None:
        distribution = predictive(n_rows)  # a new one, because it remembers its moments
        _ = distribution.mean, distribution.std

    progress("prediction: one row")
    moments(1)  # compiles
    one_row = statistics.median(seconds_of(lambda: moments(1)) for _ in range(5 if quick else 51))

    progress("prediction: moments")
    trial = 500 if quick else 4_000
    moments(trial)
    affordable = LONGEST_RUN * trial / seconds_of(lambda: moments(trial))
    n_rows = trial if quick else int(min(N_ROWS, affordable))
    seconds, peak = interleave(lambda: seconds_of(lambda: moments(n_rows)), sgemm_peak, repetitions=3)
    products = sum(fan_in * fan_out for fan_in, fan_out in NETWORK.layer_sizes)
    rate = 2e-9 * products * n_rows * N_DRAWS / seconds

    progress("prediction: quantiles")
    n_quantile_rows = 64 if quick else 1_000
    quantile_seconds = seconds_of(lambda: predictive(n_quantile_rows).quantile(LEVELS))
    error = _quantile_error(predictive(CHECKED_ROWS), draws, x[:CHECKED_ROWS])
    levels = ", ".join(map(str, LEVELS))
    fewer = "" if n_rows == N_ROWS else f" (fewer than {N_ROWS:,}, to stay under {LONGEST_RUN:.0f} s a run)"
    return [
        Row(name="one predicted row", value=1e3 * one_row, unit="ms", high=5.0, note="mean and std, warm"),
        Row(
            name="mean and std of many rows",
            value=rate,
            unit="GFLOP/s",
            peer=peak,
            ratio=rate / peak,
            low=0.45,
            note=f"{n_rows:,} rows{fewer} in {seconds:.1f} s; peer: sgemm",
        ),
        Row(
            name="quantiles, time per row",
            value=1e3 * quantile_seconds / n_quantile_rows,
            unit="ms",
            note=f"levels {levels}; {n_quantile_rows:,} rows",
        ),
        Row(
            name="quantiles, largest error",
            value=error,
            unit="sd",
            high=1e-4,
            note=f"{CHECKED_ROWS} rows against float64",
        ),
    ]


def _quantile_error(predictive: Predictive, draws: np.ndarray, x: np.ndarray) -> float:
    """Return the largest distance from the reference, in predictive standard deviations."""
    quantiles = predictive.quantile(LEVELS)
    errors = []
    for index, row in enumerate(x):
        location, scale = _components(draws, row)
        spread = np.sqrt(location.var() + np.mean(scale**2))
        low, high = np.min(location - 10 * scale), np.max(location + 10 * scale)
        for level, found in zip(LEVELS, quantiles[index], strict=True):
            exact = brentq(_excess, low, high, args=(location, scale, level), xtol=1e-13)
            errors.append(abs(found - exact) / spread)
    return float(max(errors))


def _excess(y: float, location: np.ndarray, scale: np.ndarray, level: float) -> float:
    return float(np.mean(ndtr((y - location) / scale)) - level)


def _components(draws: np.ndarray, row: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Evaluate every draw's network on one row in float64, straight from the layout of the flat vector."""
    hidden = np.broadcast_to(row.astype(np.float64), (len(draws), len(row)))
    start = 0
    for layer, (fan_in, fan_out) in enumerate(NETWORK.layer_sizes):
        if layer > 0:
            hidden = np.maximum(hidden, 0.0)
        stop = start + (fan_in + 1) * fan_out
        weights = draws[:, start:stop].astype(np.float64).reshape(-1, fan_in + 1, fan_out)
        hidden = np.einsum("di,dio->do", hidden, weights[:, :-1]) + weights[:, -1]
        start = stop
    return hidden[:, 0], np.exp(hidden[:, 1])


if __name__ == "__main__":
    command_line(main)
