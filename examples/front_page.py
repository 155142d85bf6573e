"""Draw the picture of the front page: what a deep ensemble and MILE say where there are no data.

Usage: python examples/front_page.py [FOLDER]    writes FOLDER/front-page.png (default: docs/pictures)
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from mile import MileRegressor

LEVELS = (0.98, 0.9, 0.7, 0.5, 0.3)
SAMPLERS = {"deep_ensemble": "Deep ensemble: 12 networks", "mile": "MILE: 12,000 networks around them"}


def measured(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return rows on both sides of a gap; the noise grows to the right."""
    x = np.concatenate([rng.uniform(-4.0, -1.7, 50), rng.uniform(1.7, 4.0, 50)])
    return x, truth(x) + (0.08 + 0.06 * (x + 4.0)) * rng.normal(size=len(x))


def truth(x: np.ndarray) -> np.ndarray:
    """Return what the measurements scatter around."""
    return np.sin(1.4 * x) + 0.25 * x


def main(folder: Path) -> None:
    """Fit both and draw their intervals side by side."""
    x, y = measured(np.random.default_rng(4))
    grid = np.linspace(-5.5, 5.5, 400)
    _, axes = plt.subplots(1, 2, figsize=(10, 3.4), sharey=True, layout="constrained", dpi=110)
    for axis, (sampler, title) in zip(axes, SAMPLERS.items(), strict=True):
        model = MileRegressor(sampler=sampler, random_state=1).fit(x[:, None], y)
        predicted = model.predictive(grid[:, None])
        for level, shade in zip(LEVELS, (0.12, 0.2, 0.25, 0.3, 0.35), strict=True):
            axis.fill_between(grid, *predicted.interval(level).T, color="#1f6f8b", alpha=shade, linewidth=0)
        axis.plot(grid, predicted.mean, color="#0b3c49", linewidth=1.6)
        axis.plot(grid, truth(grid), color="#555555", linewidth=1.0, linestyle=(0, (4, 3)))
        axis.scatter(x, y, s=13, color="#e07a2f", edgecolor="white", linewidth=0.4, zorder=3)
        axis.set(title=title, xlim=(-5.5, 5.5), ylim=(-3.7, 4.1), xticks=[], yticks=[])
        axis.spines[:].set_visible(False)
    folder.mkdir(parents=True, exist_ok=True)
    plt.savefig(folder / "front-page.png")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[1] / "docs" / "pictures"))
