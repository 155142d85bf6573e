"""How sure: intervals of three methods, checked on rows that nobody has seen.

A prediction of 90 % should be right nine times of ten. Linear regression with its textbook intervals, a deep ensemble
and MILE predict the strength of a made-up material; then it is counted how often the truth lies inside their
intervals.

Picture: Share of new rows inside intervals of each level, for three methods, with a diagonal. Linear regression and
the ensemble run a little below the diagonal, MILE a little above it.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.stats import norm
from sklearn.linear_model import LinearRegression

from mile import MileRegressor, metrics

LEVELS = np.linspace(0.05, 0.95, 19)


def measured(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return five properties of a mixture and its strength."""
    x = rng.uniform(-1, 1, (n, 5))
    strength = np.sin(3 * x[:, 0]) * x[:, 1] + x[:, 2] ** 2 + 0.5 * np.abs(x[:, 3])
    return x, strength + (0.05 + 0.2 * (x[:, 4] + 1)) * rng.normal(size=n)


def main() -> None:
    """Fit three methods and count."""
    x, y = measured(np.random.default_rng(0), 150)
    x_new, y_new = measured(np.random.default_rng(1), 2_000)
    linear = LinearRegression().fit(x, y)
    spread = np.sqrt(np.sum((y - linear.predict(x)) ** 2) / (len(y) - 6))
    z = np.abs(y_new - linear.predict(x_new)) / spread
    shares = {"linear regression": np.array([np.mean(z <= norm.ppf(0.5 + level / 2)) for level in LEVELS])}
    print(f"linear regression: log density {np.mean(norm.logpdf(y_new, linear.predict(x_new), spread)):.2f}")
    for sampler, name in (("deep_ensemble", "deep ensemble"), ("mile", "MILE")):
        predicted = MileRegressor(sampler=sampler, random_state=0).fit(x, y).predictive(x_new)
        shares[name] = metrics.coverage(predicted, y_new, LEVELS)
        print(f"{name}: log density {metrics.lppd(predicted, y_new):.2f}, inside 90 %: {shares[name][-2]:.0%}")

    _, axis = plt.subplots(figsize=(5.2, 4.4), layout="constrained", dpi=110)
    axis.plot([0, 1], [0, 1], color="#555555", linestyle=(0, (4, 3)), linewidth=1)
    for (name, share), color in zip(shares.items(), ("#7a7a7a", "#e07a2f", "#1f6f8b"), strict=True):
        axis.plot(LEVELS, share, marker="o", markersize=3, color=color, label=name)
    axis.set(xlabel="level of the interval", ylabel="share of new rows inside", xlim=(0, 1), ylim=(0, 1))
    axis.legend(frameon=False)
    axis.spines[["top", "right"]].set_visible(False)
    plt.savefig("how_sure.png")


if __name__ == "__main__":
    main()
