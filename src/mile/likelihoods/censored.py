"""The likelihood of a response with limits: densities of what was observed, probabilities of the rest."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from mile import _registry
from mile._checks import check_flag
from mile._types import Outputs
from mile.features.numbers import Standardizer
from mile.likelihoods.base import AbstractLikelihood, Encoded, Mixture, OutputsOfDraws, PerRow, Table, Tensors
from mile.likelihoods.censorable import AbstractCensorable, AbstractTailedComponents
from mile.likelihoods.limits import LIMITS, UNKNOWN, Limits, limits_of, log_probability, split
from mile.likelihoods.log_logistic import LogLogistic
from mile.likelihoods.numbers import ScaledResponse
from mile.likelihoods.survival import SurvivalPredictive

_FIELDS = ("lower", "upper")


@dataclass(frozen=True)
class CensoredResponse(ScaledResponse):
    """Two numbers for each row, the limits on the scale of the family; infinity becomes the largest number."""

    scale: Standardizer
    lowest: float

    def encode(self, y: np.ndarray) -> Encoded:
        """Return both limits in float32, shape (row, 2); an interval too narrow for that counts as observed."""
        y = limits_of(y)
        found = np.empty((len(y), 2), np.float32)
        for place, name in enumerate(_FIELDS):
            ends = y[name]
            known = np.isfinite(ends) & (ends > self.lowest)
            found[:, place] = np.where(known, self.scale.apply(np.where(known, ends, 0.0)), np.copysign(UNKNOWN, ends))
        found[:, 0] = np.where(y["lower"] > self.lowest, found[:, 0], -UNKNOWN)
        return found

    def decode(self, encoded: np.ndarray) -> np.ndarray:
        """Return limits on the scale of y; numbers without a second axis are single values."""
        if encoded.ndim == 1:
            return super().decode(encoded)
        found = np.empty(len(encoded), LIMITS)
        for place, name in enumerate(_FIELDS):
            ends = encoded[:, place].astype(np.float64)
            known = np.abs(ends) < UNKNOWN
            found[name] = np.where(known, super().decode(np.where(known, ends, 0.0)), np.copysign(np.inf, ends))
        return found

    def usable(self, y: np.ndarray) -> np.ndarray:
        """Return which entries are possible."""
        usable = np.zeros(len(y), bool)
        for row in range(len(y)):
            try:
                limits_of(y[row : row + 1])
            except ValueError:
                continue
            usable[row] = True
        return usable

    def cast(self, y: np.ndarray) -> np.ndarray:
        """Return the two limits of each row."""
        return limits_of(y)


@_registry.likelihood("censored")
@dataclass(frozen=True)
class Censored(AbstractLikelihood):
    """Response of which some values are known by limits only, such as survival times, with the outputs of a family.

    An observed row counts by its density, any other by the probability of lying between its limits.

    Parameters
    ----------
    family
        Distribution of the values: `LogLogistic()`, `LogNormal()`, `Weibull()` or `Gaussian()`.
    only_right
        Whether all rows are observed or known to be larger; then a step takes less time. Estimators find out.
    """

    family: AbstractCensorable = field(default_factory=LogLogistic)
    only_right: bool = False

    task = "regression"

    def __post_init__(self) -> None:
        if not isinstance(self.family, AbstractCensorable) or not self.family.takes_limits:
            raise ValueError(f"family must be {_families()}; got {self.family!r}.")
        check_flag("only_right", self.only_right)

    @property
    def n_outputs(self) -> int:
        """Outputs of the family."""
        return self.family.n_outputs

    def log_prob(self, outputs: Outputs, y: Float[Array, "row 2"]) -> Float[Array, " row"]:
        """Return the log density or probability of each row."""
        family = self.family
        if self.only_right:
            lower, upper = y[:, 0], y[:, 1]
            return jnp.where(lower == upper, family.log_prob(outputs, lower), family.log_survival(outputs, lower))
        return log_probability(
            jnp,
            (y[:, 0], y[:, 1]),
            family.lowest,
            lambda y: family.log_prob(outputs, y),
            lambda y: family.log_cdf(outputs, y),
            lambda y: family.log_survival(outputs, y),
        )

    def components(self, outputs: OutputsOfDraws) -> AbstractTailedComponents:
        """Return the family's distributions."""
        return self.family.components(outputs)

    @classmethod
    def for_response(cls, y: np.ndarray) -> "Censored":
        """Return the likelihood that knows whether all limits are lower ones."""
        return cls(only_right=_are_right(split(limits_of(y)), LogLogistic.lowest))

    @classmethod
    def check(cls, y: np.ndarray) -> np.ndarray:
        """Return the limits of each row, or name the first that is impossible."""
        return limits_of(y)

    @classmethod
    def parse(cls, values: np.ndarray, name: str) -> np.ndarray:
        """Return numbers, all of them observed."""
        return limits_of(values.astype(np.float64))

    @classmethod
    def read(cls, table: Table, name: str) -> np.ndarray:
        """Return a column of numbers, all of them observed."""
        return limits_of(table.matrix([name])[:, 0])

    def learn(self, y: np.ndarray, rows: Int[np.ndarray, " chosen"], weight: PerRow | None = None) -> CensoredResponse:
        """Learn the scale of the family from the training rows."""
        limits, lowest = split(y), self.family.lowest
        self._refuse_low(limits)
        if not (np.isfinite(limits.upper[rows])).any():
            raise ValueError(
                "y must have at least one event: all rows are censored on the right, so that nothing is known of when "
                "events happen."
            )
        found = self.family.learn_from_limits(limits, rows, weight)
        assert isinstance(found, ScaledResponse)
        return CensoredResponse(found.scale, lowest)

    def _refuse_low(self, limits: Limits) -> None:
        lowest, name = self.family.lowest, type(self.family).__name__
        for ends, which in ((limits.upper, "is or ends"), (np.where(limits.is_exact, limits.lower, 1.0), "is")):
            wrong = np.flatnonzero(ends <= lowest)
            if wrong.size:
                raise ValueError(
                    f"y {which} at {ends[wrong[0]]:g} in row {wrong[0]} ({wrong.size:,} such rows), and a {name} is of "
                    "numbers above zero only: add half the unit in which times are counted, remove these rows, or use "
                    'likelihood="gaussian".'
                )

    def fitted(self, y: Encoded) -> "Censored":
        """Return this likelihood with what its family takes from the training rows."""
        ends = np.where(np.abs(y) < UNKNOWN, y, np.copysign(np.inf, y)).astype(np.float64)
        return replace(self, family=self.family.fitted_to_limits(Limits(ends[:, 0], ends[:, 1])))

    def plain_response(self) -> CensoredResponse:
        """Return the scale that changes nothing."""
        return CensoredResponse(Standardizer.identity(), self.family.lowest)

    def check_encoded(self, y: Encoded, name: str) -> None:
        """Refuse what is not two limits in each row."""
        if y.dtype.kind != "f" or y.ndim != 2 or y.shape[1] != 2:
            raise ValueError(f"{name} must hold two limits for each row, shape (rows, 2); it has {y.dtype} {y.shape}.")
        possible = (y[:, 0] <= y[:, 1]) & (y[:, 1] > self.family.lowest)
        if self.only_right:
            possible &= (y[:, 0] > -UNKNOWN) & ((y[:, 0] == y[:, 1]) | (y[:, 1] == UNKNOWN))
        wrong = np.flatnonzero(~possible)
        if wrong.size:
            raise ValueError(f"{name} has impossible limits, {y[wrong[0]].tolist()}, in row {wrong[0]}.")

    def restore_response(self, tensors: Tensors) -> CensoredResponse:
        """Return the scale that a file has kept."""
        return CensoredResponse(Standardizer.read(tensors, ()), self.family.lowest)

    def strata(self, y: np.ndarray) -> Int[np.ndarray, " row"]:
        """Return 1 for rows that were observed and 0 for others: each fold has its share."""
        return split(y).is_exact.astype(np.int64)

    def predictive(self, mixture: Mixture, response: CensoredResponse) -> SurvivalPredictive:  # pyright: ignore
        """Return the predictive distribution of a value that may lie beyond a limit."""
        return SurvivalPredictive(mixture, self, response)

    def aim(self, target: str) -> str:
        """Say that a distribution is predicted from values and limits."""
        return f"{target}, of which some rows are limits, and its noise"

    def remarks(self, outputs: Callable[[], OutputsOfDraws], y: Encoded) -> list[str]:
        """Return nothing: whether noise is too small is the family's floor to decide."""
        return []


def with_limits(
    family: type[AbstractLikelihood], given: AbstractLikelihood | None, y: np.ndarray, *, is_named: bool
) -> Censored:
    """Return the likelihood of a response with limits for one that was chosen.

    Parameters
    ----------
    family, given
        The class that was chosen, by the user or by default, and the object if it is one.
    y
        With limits.
    is_named
        Whether the user chose it. If not, it is that of `Censored()`, or for negative limits the default.

    Raises
    ------
    ValueError
        If that family takes no limits.
    """
    if isinstance(given, Censored):
        return given
    if family.task != Censored.task:
        raise ValueError("y has limits, such as those of survival times, which only a regressor takes.")
    limits = split(limits_of(y))
    finite = np.concatenate([ends[np.isfinite(ends)] for ends in limits])
    if issubclass(family, Censored) or (not is_named and not (finite < 0.0).any()):
        return Censored.for_response(y)
    chosen = given or family()
    if not isinstance(chosen, AbstractCensorable) or not chosen.takes_limits:
        raise ValueError(f"a {family.__name__} takes no response with limits: likelihood must be {_families()}.")
    return Censored(family=chosen, only_right=_are_right(limits, chosen.lowest))


def _are_right(limits: Limits, lowest: float) -> bool:
    """Say whether each row was observed, or is known to be larger than a number."""
    known = np.isfinite(limits.lower) & (limits.lower > lowest)
    return bool(np.all(known & (limits.is_exact | np.isinf(limits.upper))))


def _families() -> str:
    known = _registry.likelihood.classes.items()
    names = [name for name, kind in known if issubclass(kind, AbstractCensorable) and kind.takes_limits]
    return f"one of {sorted(names)} or such an object"
