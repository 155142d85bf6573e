"""Draw the pictures of docs/understand/method.md: functions of networks, and the path of a chain.

Usage: python examples/method_pictures.py [FOLDER]    (default: docs/pictures)
"""

import sys
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import mile
from mile import MileRegressor
from mile.samplers import Mile

BLUE, DARK, ORANGE = "#1f6f8b", "#0b3c49", "#e07a2f"
N_SHOWN = 40  # functions of a panel
GRID = np.linspace(-5.0, 5.0, 300)


def functions(folder: Path) -> None:
    """Draw one network, an ensemble, one chain and all chains over the same points."""
    rng = np.random.default_rng(4)
    x = np.concatenate([rng.uniform(-4.0, -1.5, 20), rng.uniform(1.5, 4.0, 20)])
    y = np.sin(1.4 * x) + 0.25 * x + 0.15 * rng.normal(size=len(x))
    means = {}
    for sampler in ("deep_ensemble", "mile"):
        model = MileRegressor(sampler=sampler, random_state=1).fit(x[:, None], y)
        means[sampler], _ = model.predictive(GRID[:, None]).moments_per_draw()
    chains = means["mile"].reshape(12, -1, len(GRID))
    # The chain that follows the points most closely; of some, the fold left out is a whole end of the range.
    shown = int(np.argmin([np.std(y - np.interp(x, GRID, chain.mean(axis=0))) for chain in chains]))
    panels = {
        "one trained network": means["deep_ensemble"][:1],
        "an ensemble": means["deep_ensemble"],
        "one chain": chains[shown, :: len(chains[0]) // N_SHOWN],
        "twelve chains": chains[:, :: len(chains[0]) // 6].reshape(-1, len(GRID)),
    }
    _, axes = plt.subplots(2, 2, figsize=(8, 4.6), sharey=True, layout="constrained", dpi=110)
    for axis, (title, lines) in zip(axes.flat, panels.items(), strict=True):
        axis.plot(GRID, lines.T, color=BLUE, linewidth=0.8, alpha=1.0 if len(lines) < N_SHOWN / 2 else 0.35)
        axis.scatter(x, y, s=8, color=ORANGE, zorder=3)
        axis.set(title=title, xticks=[], yticks=[], ylim=(-4, 4), xlim=(-5, 5))
        axis.spines[:].set_visible(False)
    plt.savefig(folder / "method-functions.png")


def log_density(x):
    """Return the log density of a curved ridge."""
    return -0.5 * (x[0] / 2.0) ** 2 - 0.5 * ((x[1] - 0.4 * x[0] ** 2) / 0.5) ** 2


def path(folder: Path) -> None:
    """Draw the path of a chain over the contours of a density."""
    sampler = replace(Mile.presets()["accurate"], warmup_steps=4_000, sampling_steps=900, n_draws=900, step_size=0.2)
    found = mile.sample(log_density, jnp.array([[0.0, 0.5]]), sampler=sampler, random_state=3)
    way = np.asarray(found.draws[0, :400])
    x, y = np.meshgrid(np.linspace(-5.5, 5.5, 200), np.linspace(-2, 9, 200))
    values = jax.vmap(log_density)(jnp.stack([x.ravel(), y.ravel()], axis=1)).reshape(x.shape)
    _, axis = plt.subplots(figsize=(8, 3.4), layout="constrained", dpi=110)
    axis.contourf(x, y, np.exp(values), levels=[0.005, 0.05, 0.2, 0.5, 0.8, 1.0], cmap="Blues", alpha=0.6)
    axis.plot(*way.T, color=DARK, linewidth=1.0, alpha=0.7)
    axis.scatter(*way.T, s=4, color=ORANGE, zorder=3)
    axis.scatter(*way[0], s=60, color=DARK, zorder=4)
    axis.annotate("start", way[0], textcoords="offset points", xytext=(8, -12))
    axis.set(xticks=[], yticks=[])
    axis.spines[:].set_visible(False)
    plt.savefig(folder / "method-chain.png")


def main(folder: Path) -> None:
    """Draw both."""
    folder.mkdir(parents=True, exist_ok=True)
    functions(folder)
    path(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[1] / "docs" / "pictures"))
