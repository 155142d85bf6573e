"""Several outputs that are independent given the features: one body of the network, a head of any family for each."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from mile import _registry
from mile._types import Outputs
from mile.likelihoods.base import AbstractLikelihood, AbstractResponse, Encoded, OutputsOfDraws, PerDraw
from mile.likelihoods.gaussian import Gaussian
from mile.likelihoods.joint import KnownOutputs
from mile.likelihoods.numbers import AbstractNumberLikelihood, Predictive
from mile.likelihoods.outputs import AbstractSeveral, Marginal, check_names


@_registry.likelihood("independent")
@dataclass(frozen=True)
class Independent(AbstractSeveral):
    """Several numbers for each row, independent given the features, each of a family of its own.

    The outputs share the network but for its last layer, so that they are not independent once draws differ.

    Parameters
    ----------
    families
        One likelihood of numbers for each column of y, such as `(Gaussian(link="bounded"), Poisson())`.
    names
        What the outputs are called; () takes the names of y's columns, or y0, y1 and so on.
    """

    families: tuple[AbstractNumberLikelihood, ...]
    names: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.families, tuple) or not all(map(_is_of_numbers, self.families)):
            raise ValueError(
                f"families must be likelihoods of one number each, such as (Gaussian(), Poisson()); got "
                f"{self.families!r}."
            )
        check_names(self.names, len(self.families))

    @classmethod
    def of_size(cls, n_responses: int) -> "Independent":
        """Return normal distributions whose noise stays within sight of y."""
        return cls((Gaussian(link="bounded"),) * n_responses)

    def called(self, names: tuple[str, ...]) -> "Independent":
        """Return this likelihood with the names that y came with."""
        return replace(self, names=names) if names and not self.names else self

    @property
    def n_outputs(self) -> int:
        """Outputs of all families."""
        return sum(one.n_outputs for one in self.families)

    @property
    def marginals(self) -> tuple[Marginal, ...]:
        """The families, with neighboring outputs of the network."""
        ends = np.cumsum([one.n_outputs for one in self.families])
        pairs = zip(self.families, ends.tolist(), strict=True)
        return tuple(Marginal(one, np.arange(end - one.n_outputs, end)) for one, end in pairs)

    def fitted(self, y: Encoded) -> "Independent":
        """Return this likelihood with what each family takes from its column."""
        pairs = zip(self.families, y.T, strict=True)
        families = tuple(one.fitted(column.astype(one.dtype)) for one, column in pairs)
        return replace(self, families=cast(tuple[AbstractNumberLikelihood, ...], families))

    def log_prob(self, outputs: Outputs, y: Float[Array, "row output"]) -> Float[Array, " row"]:
        """Return the sum of the log densities of each row."""
        found = []
        for place, (one, places) in enumerate(self.marginals):
            column = y[:, place]
            is_whole = jnp.issubdtype(one.dtype, jnp.integer)
            found.append(
                one.log_prob(outputs[places[0] : places[-1] + 1], column.astype(one.dtype) if is_whole else column)
            )
        return sum(found[1:], start=found[0])

    def joint_log_prob(
        self, outputs: OutputsOfDraws, parts: Sequence[AbstractResponse], y: Float[np.ndarray, "output row"]
    ) -> PerDraw:
        """Return the sum of the log densities of each row under each draw."""
        found = [alone.log_prob_per_draw(column) for alone, column in zip(self._alone(outputs, parts), y, strict=True)]
        return np.sum(found, axis=0)

    def joint_sample(
        self, outputs: OutputsOfDraws, parts: Sequence[AbstractResponse], rng: np.random.Generator
    ) -> Float[np.ndarray, "output row"]:
        """Draw each output by its own family."""
        seeds = rng.integers(2**31, size=len(self.families)).tolist()
        pairs = zip(self._alone(outputs, parts), seeds, strict=True)
        return np.stack([alone.sample(1, seed)[0] for alone, seed in pairs])

    def noise_correlation(self, outputs: OutputsOfDraws, one: int, other: int) -> PerDraw:
        """Return zero."""
        return np.zeros(())

    def _alone(self, outputs: OutputsOfDraws, parts: Sequence[AbstractResponse]) -> list[Predictive]:
        pairs = zip(self.marginals, parts, strict=True)
        return [
            cast(Predictive, one.predictive(KnownOutputs(outputs[:, places]), part)) for (one, places), part in pairs
        ]


def _is_of_numbers(one: object) -> bool:
    return isinstance(one, AbstractNumberLikelihood)


def for_outputs(
    family: type[AbstractLikelihood],
    given: AbstractLikelihood | None,
    y: np.ndarray,
    names: tuple[str, ...] = (),
) -> AbstractLikelihood | None:
    """Return the likelihood of a checked response of several columns; None if y has one, for `given` or `family`.

    Parameters
    ----------
    family, given
        The class that was chosen, by the user or by default, and the object if it is one.
    y
        The response.
    names
        Of its columns.

    Raises
    ------
    ValueError
        If that family is not of so many numbers for each row.
    """
    n_responses = y.shape[1] if y.ndim == 2 else 1
    if n_responses == 1:
        if issubclass(family, AbstractSeveral):
            raise ValueError(f"a {family.__name__} is of several outputs, and y has one column; got shape {y.shape}.")
        return None
    chosen = given
    if issubclass(family, AbstractSeveral):
        chosen = given or family.of_size(n_responses)
    elif issubclass(family, AbstractNumberLikelihood):
        heads = [given or family.for_response(column) for column in y.T]
        chosen = Independent(tuple(cast(AbstractNumberLikelihood, one) for one in heads))
    if not isinstance(chosen, AbstractSeveral):
        raise ValueError(f"y has {n_responses} columns, and a {family.__name__} is of one value for each row.")
    if len(chosen.marginals) != n_responses:
        raise ValueError(f"the likelihood is of {len(chosen.marginals)} outputs, and y has {n_responses} columns.")
    return chosen.called(names)
