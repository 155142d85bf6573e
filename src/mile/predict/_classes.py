"""The predictive distribution of a class."""

from functools import cached_property
from typing import Any, NoReturn

import numpy as np
from jaxtyping import Float
from scipy.special import entr, logsumexp

from mile._checks import check_count
from mile._random import draw_seed
from mile.likelihoods import Categorical
from mile.predict._mixture import DEFAULT_MEMORY, Mixture
from mile.storage import FlatDraws


class ClassPredictive:
    """Predictive distribution of a class for each row."""

    def __init__(
        self,
        network: Any,
        likelihood: Categorical,
        draws: Float[np.ndarray, "draw d"] | FlatDraws,
        x: Float[np.ndarray, "row feature"],
        classes: np.ndarray,
        memory: int = DEFAULT_MEMORY,
    ) -> None:
        self._mixture = Mixture(network, likelihood, draws, x, memory)
        self._likelihood = likelihood
        self.classes = classes

    def __len__(self) -> int:
        return self._mixture.n_rows

    @property
    def probs(self) -> Float[np.ndarray, "row class"]:
        """Probability of each class, the mean over draws; a row sums to one."""
        return self._summary[0].T

    @property
    def labels(self) -> np.ndarray:
        """Most probable class of each row."""
        return self.classes[np.argmax(self.probs, axis=1)]

    @property
    def entropy(self) -> Float[np.ndarray, " row"]:
        """Entropy of the predicted class in nats: total uncertainty."""
        return entr(self.probs).sum(axis=1)

    @property
    def mutual_information(self) -> Float[np.ndarray, " row"]:
        """Part of the entropy that knowing the weights would remove, in nats: epistemic uncertainty."""
        return np.maximum(self.entropy - self._summary[1], 0.0)

    @cached_property
    def _summary(self) -> tuple[np.ndarray, np.ndarray]:
        if self._mixture.kernel:
            _, means = self._mixture.over_draws(self._mixture.kernel)
            return means[:-1] / means[:-1].sum(axis=0), means[-1]

        def summarize(components: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            probs = np.exp(self._likelihood.component_log_probs(components))
            mean = probs.mean(axis=0)
            return mean / mean.sum(axis=0), entr(probs).sum(axis=1).mean(axis=0)

        return self._mixture.over_blocks(summarize)

    def log_prob(self, y: np.ndarray) -> Float[np.ndarray, " row"]:
        """Return the log predictive probability of one label per row.

        Raises
        ------
        ValueError
            If a label was not among the classes of the training data.
        """

        def log_probability(components: np.ndarray, codes: np.ndarray) -> np.ndarray:
            per_draw = self._of_class(components, codes)
            return logsumexp(per_draw, axis=0) - np.log(len(per_draw))

        return self._mixture.over_blocks(log_probability, self._encode(y))

    def log_prob_per_draw(self, y: np.ndarray) -> Float[np.ndarray, "draw row"]:
        """Return the log probability of one label per row under each draw alone."""
        return self._mixture.over_blocks(self._of_class, self._encode(y))

    def _of_class(self, components: np.ndarray, codes: np.ndarray) -> np.ndarray:
        log_probs = self._likelihood.component_log_probs(components)
        return np.take_along_axis(log_probs, codes[None, None], axis=1)[:, 0]

    def sample(self, n: int = 1, random_state: int | None = None) -> np.ndarray:
        """Draw n labels per row, shape (n, row)."""
        rng = np.random.default_rng(draw_seed(random_state))
        uniform = rng.uniform(size=(check_count("n", n), len(self)))
        edges = np.cumsum(self.probs, axis=1)[:, :-1].T
        return self.classes[sum((uniform > edge for edge in edges), start=np.zeros(uniform.shape, int))]

    def quantile(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse: classes have no order."""
        raise TypeError("classes have no quantiles; use `probs` for the probability of each class.")

    interval = cdf = quantile

    def _encode(self, y: np.ndarray) -> np.ndarray:
        y = np.asarray(y)
        if y.shape != (len(self),):
            raise ValueError(f"y must have one label per row, shape {(len(self),)}; got shape {y.shape}.")
        known = np.isin(y, self.classes)
        if not known.all():
            raise ValueError(f"y contains the label {y[~known][0]!r}, which is not among classes {self.classes!r}.")
        order = np.argsort(self.classes)
        return order[np.searchsorted(self.classes, y, sorter=order)]
