"""Any density: sample a function of your own.

The sampler needs no network. Here it explores a banana-shaped density, given as a JAX function, from 16 starting
points. `preset="accurate"` takes small steps; `sampler="adjusted"` has a Metropolis test and no bias at all.

Picture: Draws as dots on the contours of a banana-shaped density. They fill it to its thin ends.
"""

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import mile


def log_density(x):
    """Return the log density of a bent normal distribution, up to a constant."""
    return -0.5 * (x[0] / 2.0) ** 2 - 0.5 * ((x[1] - 0.5 * (x[0] ** 2 - 4.0)) / 0.6) ** 2


def main() -> None:
    """Sample, compare moments with the known ones, draw."""
    starts = jax.random.normal(jax.random.key(1), (16, 2))
    result = mile.sample(log_density, starts, sampler="adjusted", preset="quick", random_state=0)
    draws = result.draws.reshape(-1, 2)
    print("chains:", {status.name for status in map(mile.Status, result.status)})
    print(f"standard deviation of x: {draws[:, 0].std():.2f} (2.00 is right)")
    print(f"mean of y: {draws[:, 1].mean():.2f} (0.00 is right)")
    print(f"smallest effective sample size: {np.min(mile.convergence.ess(result.draws)):,.0f} of {len(draws):,} draws")

    x, y = np.meshgrid(np.linspace(-6.5, 6.5, 200), np.linspace(-4.5, 17, 200))
    values = jax.vmap(log_density)(jnp.stack([x.ravel(), y.ravel()], axis=1)).reshape(x.shape)
    _, axis = plt.subplots(figsize=(8, 3.6), layout="constrained", dpi=110)
    axis.scatter(*draws[:: max(1, len(draws) // 1_500)].T, s=4, color="#e07a2f", alpha=0.6)
    axis.contour(x, y, np.exp(values), levels=[0.01, 0.1, 0.3, 0.6, 0.9], colors="#1f6f8b", linewidths=1)
    axis.set(xlim=(-6.5, 6.5), ylim=(-4.5, 14), xticks=[], yticks=[])
    axis.spines[:].set_visible(False)
    plt.savefig("a_bent_density.png")


if __name__ == "__main__":
    main()
