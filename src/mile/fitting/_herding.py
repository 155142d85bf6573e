"""Few draws that predict as all do: chosen one after another, by kernel herding on ratios of predictive densities.

Let r[i, c] be the density of draw i over that of all draws at cell c, a row x with a value of y that the model itself
predicts there. With p for all draws and q for a choice of them, the expected loss in log density is the divergence
E[log p / q], which is near E[(q / p - 1)^2] / 2: half the squared distance of the mean of the chosen rows of r to one.
Herding takes, each time, the draw that brings that mean nearest to one, and then each once more, given the others. It
is the kernel method of Chen, Welling and Smola (2010, "Super-samples from kernel herding") with the kernel that belongs
to the loss itself, so there is no bandwidth to choose. Each run of neighbors gives its share of the choice: in tails,
where ratios vary most, that alone loses less than draws at random. Weights for the chosen draws, by maximum likelihood
on the same cells, lost more on other rows than they gained, so all count the same; benchmarks/compressing.py measures.
"""

import numpy as np
from jaxtyping import Float, Int

from mile.fitting.unseen import Estimate
from mile.likelihoods.weights import DrawWeights

# The value is one that nearly all others do not expect; without a limit a few such cells would decide everything. Of 3,
# 10, 30, 100 and none, 30 lost least on the six tables.
_LARGEST_RATIO = 30.0
_OF_RUN = 4  # draws of each run of neighbors
_SMALLEST = 1e-6  # mean ratio, for cells that no chosen draw expects

Ratios = Float[np.ndarray, "draw cell"]


def herd(ratios: Ratios, n_draws: int) -> Int[np.ndarray, " choice"]:
    """Return draws that together have ratios near one, out of candidates that count the same and stand by chain."""
    near = np.minimum(ratios, _LARGEST_RATIO)
    near = near - near.mean(axis=0)
    squares = np.einsum("dc,dc->d", near, near)
    n_runs = max(1, n_draws // _OF_RUN)
    run = np.arange(len(near)) * n_runs // len(near)
    left = np.full(n_runs, n_draws // n_runs)
    left[: n_draws % n_runs] += 1
    starts = np.searchsorted(run, np.arange(n_runs + 1))
    total = np.zeros(near.shape[1], np.float32)
    chosen = np.empty(n_draws, int)
    for size in range(n_draws):
        distance = squares + 2.0 * (near @ total)  # that of the sum with each draw, but for what is the same for all
        distance[left[run] == 0] = np.inf
        chosen[size] = np.argmin(distance)
        left[run[chosen[size]]] -= 1
        total += near[chosen[size]]
    for size in range(n_draws):
        total -= near[chosen[size]]
        own = slice(starts[run[chosen[size]]], starts[run[chosen[size]] + 1])
        chosen[size] = own.start + np.argmin(squares[own] + 2.0 * (near[own] @ total))
        total += near[chosen[size]]
    return chosen


def expected_loss(ratios: Ratios, chosen: Int[np.ndarray, " choice"]) -> Estimate:
    """Return E[log p / q] and its standard error, from cells that the choice was not made by.

    Ratios have mean one, so that q / p - 1 - log(q / p) has the same mean; it varies less and is never negative.
    """
    mean = np.maximum(ratios[chosen].mean(axis=0, dtype=np.float64), _SMALLEST)
    loss = mean - 1.0 - np.log(mean)
    return Estimate(float(loss.mean()), float(loss.std() / np.sqrt(len(loss))))


def evenly(weights: DrawWeights, n_draws: int, most: int) -> Int[np.ndarray, " choice"]:
    """Return at most so many of the draws, evenly along their weights, so that all of them count the same."""
    if weights.values is None and n_draws <= most:
        return np.arange(n_draws)
    edges = np.cumsum(np.full(n_draws, 1.0 / n_draws) if weights.values is None else weights.values)
    levels = (np.arange(most) + 0.5) / most * edges[-1]
    return np.minimum(np.searchsorted(edges, levels), n_draws - 1)


def crossed(x: Float[np.ndarray, "row feature"], n_rows: int, rng: np.random.Generator) -> np.ndarray:
    """Return so many rows, half of them as they are and half with each feature from one of two rows.

    Draws agree most on the rows that they were trained on; between and around these is where a choice can lose.
    """
    first, second = rng.integers(len(x), size=(2, n_rows))
    taken = rng.random((n_rows, x.shape[1])) < 0.5
    taken[: n_rows // 2] = True
    return np.where(taken, x[first], x[second])
