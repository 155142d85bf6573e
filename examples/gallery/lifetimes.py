"""Lifetimes: survival curves with bands.

How long does a part last, given its load and temperature? Lifetimes are positive and skewed, so the likelihood is a
Weibull distribution. Every draw of the chains has a survival curve of its own: the band shows how far they agree. It
is narrow for a part like many in the data and wide for one at a load that was never tried.

Picture: Survival curves of three parts. The curve of the common part has a narrow band, that of the part at twice the
largest load a wide one.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.special import gammaln

from mile import MileRegressor

PARTS = {
    "common: load 1.0, 40 °C": (1.0, 40.0),
    "hot: load 1.0, 75 °C": (1.0, 75.0),
    "untried: load 3.0, 40 °C": (3.0, 40.0),
}
COLORS = ("#1f6f8b", "#e07a2f", "#6b4c9a")


def measured(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return loads, temperatures and lifetimes in hours of 300 parts."""
    load, heat = rng.uniform(0.5, 1.5, 300), rng.uniform(20, 80, 300)
    scale = 2_000 * load**-1.5 * np.exp(-0.025 * (heat - 40))
    return np.column_stack([load, heat]), scale * rng.weibull(2.0, 300)


def main() -> None:
    """Fit, print medians, draw the curves."""
    x, hours = measured(np.random.default_rng(1))
    model = MileRegressor(likelihood="weibull", preset="quick", n_chains=6, random_state=0).fit(x, hours)

    parts = model.predictive(np.array(list(PARTS.values())))
    for name, (low, middle, high) in zip(PARTS, parts.quantile([0.05, 0.5, 0.95]), strict=True):
        print(f"{name}: half of such parts last {middle:,.0f} hours, nine of ten {low:,.0f} to {high:,.0f}")

    times = np.linspace(1.0, 4_000.0, 60)
    _, axis = plt.subplots(figsize=(8, 3.6), layout="constrained", dpi=110)
    for (name, part), color in zip(PARTS.items(), COLORS, strict=True):
        rows = model.predictive(np.tile(part, (len(times), 1)))
        survival = 1.0 - rows.cdf(times)
        per_draw = curves(rows, times)  # each draw is a network with a curve of its own
        axis.fill_between(times, *np.quantile(per_draw, [0.05, 0.95], axis=0), color=color, alpha=0.2, linewidth=0)
        axis.plot(times, survival, color=color, label=name)
    axis.set(xlabel="hours", ylabel="share still working", ylim=(0, 1.02), xlim=(0, 4_000))
    axis.legend(frameon=False)
    axis.spines[["top", "right"]].set_visible(False)
    plt.savefig("lifetimes.png")


def curves(rows, times: np.ndarray) -> np.ndarray:
    """Return the survival curve of each draw, from means and deviations of its Weibull distribution."""
    mean, deviation = rows.moments_per_draw()
    ratio = deviation / mean
    shape = ratio**-1.086  # a well-known approximation, within 2 % for shapes from 1 to 10
    scale = mean / np.exp(gammaln(1.0 + 1.0 / shape))
    return np.exp(-((times / scale) ** shape))


if __name__ == "__main__":
    main()
