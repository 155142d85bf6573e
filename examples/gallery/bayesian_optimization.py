"""Bayesian optimization: find the best setting with few trials.

A trial is expensive, so each one should be where the best might be. Every draw of the chains is a function that fits
all trials so far; take some at random and try where each is highest (Thompson sampling). Where draws disagree, some
of them promise much, so unknown regions are tried, and where they agree that nothing is to be had, no more trials are
spent.

Picture: The unknown function with two peaks, the trials, and the functions of some draws after the last trial. Trials
gather at both peaks, and the best one is near the top of the higher peak; draws still differ where few trials were
made.
"""

import matplotlib.pyplot as plt
import numpy as np

from mile import MileRegressor

GRID = np.linspace(0.0, 1.0, 200)
TRIALS = 20


def truth(x: np.ndarray) -> np.ndarray:
    """Return what a trial measures, apart from noise: two peaks, of which one is higher."""
    return np.exp(-(((x - 0.25) / 0.12) ** 2)) + 1.4 * np.exp(-(((x - 0.72) / 0.09) ** 2))


def main() -> None:
    """Try, learn, and try again."""
    rng = np.random.default_rng(3)
    x = np.array([0.05, 0.3, 0.5, 0.95])
    y = truth(x) + 0.03 * rng.normal(size=len(x))
    while True:
        model = MileRegressor(activation="tanh", preset="quick", n_chains=4, n_folds=0, random_state=len(x))
        model.fit(x[:, None], y)
        functions, _ = model.predictive(GRID[:, None]).moments_per_draw()  # draw, place
        if len(x) == TRIALS:
            break
        places = GRID[np.argmax(functions[rng.integers(len(functions), size=2)], axis=1)]  # two trials at a time
        x, y = np.append(x, places), np.append(y, truth(places) + 0.03 * rng.normal(size=2))
    best = np.argmax(y)
    print(f"best of {TRIALS} trials: {y[best]:.2f} at {x[best]:.3f}; the highest possible is 1.40 at 0.720")

    _, axis = plt.subplots(figsize=(8, 3.6), layout="constrained", dpi=110)
    axis.plot(GRID, functions[:: len(functions) // 40].T, color="#1f6f8b", alpha=0.15, linewidth=1)
    axis.plot(GRID, truth(GRID), color="#555555", linestyle=(0, (4, 3)), label="unknown function")
    trials = {"c": np.arange(TRIALS), "cmap": "Oranges", "edgecolor": "#333333", "label": "trials, later ones darker"}
    axis.scatter(x, y, s=40, zorder=3, **trials)
    axis.set(xlabel="setting", ylabel="result", ylim=(-0.6, 2.1))
    axis.legend(frameon=False, loc="upper left")
    axis.spines[["top", "right"]].set_visible(False)
    plt.savefig("bayesian_optimization.png")


if __name__ == "__main__":
    main()
