"""Ordered class labels for classifiers: cumulative logits with learned thresholds."""

from dataclasses import dataclass, replace

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from mile import _registry
from mile._types import Outputs
from mile.likelihoods._thresholds import check_thresholds, even_thresholds, log_probabilities, thresholds_of
from mile.likelihoods.base import Encoded, OutputsOfDraws
from mile.likelihoods.categorical import Categorical, SoftmaxTwice


@_registry.likelihood("ordered_classes")
@dataclass(frozen=True)
class OrderedClasses(Categorical):
    """Class labels in their sorted order: outputs for a location, and for how far apart neighboring thresholds are.

    As `Ordinal`, of which it is the form for classifiers: labels may be numbers, or texts whose alphabetical order is
    theirs.

    Parameters
    ----------
    n_classes
        How many labels there are.
    cuts
        Thresholds where the outputs are zero. None: learned when the model is fitted.
    """

    cuts: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.cuts is not None:
            check_thresholds(self.cuts, self.n_classes)

    @property
    def n_outputs(self) -> int:
        """Location, and the log of each distance between thresholds."""
        return self.n_classes - 1

    def with_softmax_twice(self) -> SoftmaxTwice:
        """Refuse: there is no softmax."""
        raise ValueError("softmax_twice needs a network that predicts classes without an order.")

    def fitted(self, y: Encoded) -> "OrderedClasses":
        """Return this likelihood with thresholds that give each class its share of the rows."""
        if self.cuts is not None:
            return self
        return replace(self, cuts=thresholds_of(np.asarray(y), self.n_classes))

    @property
    def _cuts(self) -> tuple[float, ...]:
        return even_thresholds(self.n_classes) if self.cuts is None else self.cuts

    def log_prob(self, outputs: Outputs, y: Int[Array, " row"]) -> Float[Array, " row"]:
        """Return the log probability of each row's class."""
        return jnp.take_along_axis(log_probabilities(jnp, outputs, self._cuts), y[None], axis=0)[0]

    def log_probs(self, outputs: OutputsOfDraws) -> Float[np.ndarray, "draw class row"]:
        """Return the log probability of every class for each row under each draw, in float64."""
        parts = np.moveaxis(outputs.astype(np.float64), 1, 0)
        return np.moveaxis(log_probabilities(np, parts, self._cuts), 0, 1)
