"""A likelihood of one's own: noise with a logistic distribution, between normal and Laplace.

Three things are to be said: how many outputs the network has, the log density in JAX, which training and sampling
use, and the distributions that outputs stand for, in NumPy, which prediction uses. Scores, figures, files and
commands follow from them. y arrives standardized, and all that is returned is on that scale.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from mile import MileRegressor, _registry
from mile.likelihoods import AbstractComponents, AbstractNumberLikelihood

STD = np.pi / np.sqrt(3.0)  # standard deviation of the logistic distribution of scale 1


@dataclass(frozen=True, eq=False)
class LogisticComponents(AbstractComponents):
    """The distribution of each row under each draw."""

    location: np.ndarray  # (draw, row)
    scale: np.ndarray

    @property
    def mean(self):
        """Means."""
        return self.location

    @property
    def std(self):
        """Standard deviations."""
        return STD * self.scale

    def log_prob(self, y):
        """Return the log density of one value per row."""
        return stats.logistic.logpdf(y, self.location, self.scale)

    def cdf(self, y):
        """Return P(Y <= y) of one value per row."""
        return stats.logistic.cdf(y, self.location, self.scale)

    def quantile(self, level):
        """Return the quantiles at one level."""
        return stats.logistic.ppf(level, self.location, self.scale)

    def sample(self, rng):
        """Draw one value from each distribution."""
        return rng.logistic(self.location, self.scale)


@_registry.likelihood("logistic")
@dataclass(frozen=True)
class Logistic(AbstractNumberLikelihood):
    """Logistic noise: an output for its location and one for its log scale."""

    n_outputs = 2

    def log_prob(self, outputs, y):
        """Return the log density of each row; keep it smooth and row by row."""
        z = (y - outputs[0]) * jnp.exp(-outputs[1])
        return -z - outputs[1] - 2.0 * jax.nn.softplus(-z)

    def components(self, outputs):
        """Return the distributions of outputs (draw, output, row)."""
        location, log_scale = np.moveaxis(outputs.astype(np.float64), 1, 0)
        return LogisticComponents(location, np.exp(log_scale))


def main() -> None:
    """Fit with it; in files and arguments it is called by its name."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, (200, 1))
    y = np.sin(2 * x[:, 0]) + 0.2 * rng.logistic(size=200)
    model = MileRegressor(likelihood="logistic", preset="quick", n_chains=4, random_state=0).fit(x, y)
    print(model.predict_interval([[0.0], [1.0]], level=0.9))
    print("inside 90 %, out of fold:", model.oof_.scores["coverage_90"].value)


if __name__ == "__main__":
    main()
