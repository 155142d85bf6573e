"""A prior of one's own: independent logistic distributions, with tails between normal and Laplace.

A prior is a frozen dataclass. `bind` returns the prior of one network's flat vector: this one is the same for every
network, a prior that treats layers differently would look at `network.layers` there. `of_scale` makes it of the word
and `prior_scale`.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from mile import MileRegressor, _registry


@_registry.prior("logistic")
@dataclass(frozen=True, kw_only=True)
class LogisticPrior:
    """Independent logistic distributions around zero; the standard deviation is pi / sqrt(3) times `scale`."""

    scale: float = 1.0
    power: float = 1.0  # to which the density is raised; below 1 where the temperature is above 1

    def __post_init__(self) -> None:
        if not self.scale > 0 or not self.power > 0:
            raise ValueError(f"scale and power must be positive; got {self.scale!r} and {self.power!r}.")

    @classmethod
    def of_scale(cls, scale: float) -> "LogisticPrior":
        """Return the prior that its name stands for."""
        return cls(scale=scale)

    def bind(self, network) -> "LogisticPrior":
        """Return the prior of this network's flat vector."""
        return self

    def log_prob(self, position):
        """Return the log density up to a constant."""
        z = position / self.scale
        return -self.power * jnp.sum(z + 2.0 * jax.nn.softplus(-z))

    def sample(self, key, dimension: int):
        """Draw one parameter vector."""
        return self.scale * jax.random.logistic(key, (dimension,))

    def tempered(self, temperature: float) -> "LogisticPrior":
        """Return the prior whose density is this one's to the power 1 / temperature."""
        return LogisticPrior(scale=self.scale, power=self.power / temperature)


def main() -> None:
    """Fit with the word, and with an object."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (150, 2))
    y = np.abs(x[:, 0]) + 0.1 * rng.normal(size=150)
    for prior, scale in (("logistic", 0.5), (LogisticPrior(scale=1.0), 1.0)):
        model = MileRegressor(prior=prior, prior_scale=scale, preset="quick", n_chains=4, random_state=0)
        print(prior, "out-of-fold log density:", round(model.fit(x, y).oof_.scores["lppd"].value, 3))


if __name__ == "__main__":
    main()
