"""Outliers: measurements of which some are wrong.

One measurement in twelve is far off. A normal distribution of the noise tries to follow such rows: its mean bends and
its intervals swell. Student's t learns that the noise has heavy tails, and follows the rest.

Picture: Two panels with the same points, some far from a curve. In the left one, normal noise, the band is wide and
the mean bends to the outliers; in the right one, Student's t, both stay close to the curve.
"""

import matplotlib.pyplot as plt
import numpy as np

from mile import MileRegressor, metrics


def measured(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return n measurements, some of which are wrong."""
    x = rng.uniform(-3, 3, n)
    wrong = rng.uniform(size=n) < 1 / 12
    return x, truth(x) + np.where(wrong, rng.uniform(2, 6, n), 0.15 * rng.normal(size=n))


def truth(x: np.ndarray) -> np.ndarray:
    """Return what a right measurement scatters around."""
    return np.sin(1.5 * x) + 0.3 * x


def main() -> None:
    """Fit both and draw them side by side."""
    x, y = measured(np.random.default_rng(2), 150)
    x_new, y_new = measured(np.random.default_rng(3), 1_000)
    grid = np.linspace(-3, 3, 200)
    _, axes = plt.subplots(1, 2, figsize=(9, 3.4), sharey=True, layout="constrained", dpi=110)
    for axis, (name, title) in zip(axes, {"gaussian": "Normal", "student_t": "Student's t"}.items(), strict=True):
        model = MileRegressor(likelihood=name, preset="quick", n_chains=6, random_state=0).fit(x[:, None], y)
        predicted = model.predictive(grid[:, None])
        error = np.sqrt(np.mean((predicted.quantile(0.5) - truth(grid)) ** 2))
        score = metrics.lppd(model.predictive(x_new[:, None]), y_new)
        print(
            f"{title}: distance of the median from the curve {error:.2f}, log density of new measurements {score:.2f}"
        )
        axis.fill_between(grid, *predicted.interval(0.8).T, color="#1f6f8b", alpha=0.25, linewidth=0)
        axis.plot(grid, predicted.quantile(0.5), color="#0b3c49")
        axis.plot(grid, truth(grid), color="#555555", linestyle=(0, (4, 3)), linewidth=1)
        axis.scatter(x, y, s=10, color="#e07a2f", zorder=3)
        axis.set(title=title, xticks=[])
        axis.spines[["top", "right"]].set_visible(False)
    plt.savefig("outliers.png")


if __name__ == "__main__":
    main()
