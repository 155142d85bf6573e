"""Priors on the flat parameter vector: families of one scale, and rules that give each layer a scale of its own.

A rule knows no network: `bind` turns it into a prior of the flat vector. A family binds to itself.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from mile._checks import check_number
from mile._types import Key, Position, Scalar

_FAN_IN_GAIN = math.sqrt(2.0)  # Fortuin et al. 2022, as their code has it; the variances are those of He et al. 2015


@runtime_checkable
class FlatPrior(Protocol):
    """A prior of a flat vector; static and hashable, because compiled programs are looked up by it."""

    def log_prob(self, position: Position) -> Scalar:
        """Return the log density up to a constant."""
        ...

    def sample(self, key: Key, dimension: int) -> Position:
        """Draw one parameter vector."""
        ...

    def tempered(self, temperature: float) -> "FlatPrior":
        """Return the prior whose density is this one's to the power 1 / temperature."""
        ...


@runtime_checkable
class Prior(Protocol):
    """What a fit takes for a prior."""

    def bind(self, network: Any) -> FlatPrior:
        """Return the prior of this network's flat vector."""
        ...


@dataclass(frozen=True, kw_only=True)
class Normal:
    """Independent normal distributions around zero; `scale` is a standard deviation, never a variance."""

    scale: float = 1.0  # paper section 2: N(0, I)

    def __post_init__(self) -> None:
        check_number("scale", self.scale, positive=True)

    def bind(self, network: Any) -> "Normal":
        """Return itself: it is the same for every network."""
        return self

    def log_prob(self, position: Position) -> Scalar:
        """Return the log density up to a constant."""
        return -0.5 * jnp.sum(jnp.square(position / self.scale))

    def sample(self, key: Key, dimension: int) -> Position:
        """Draw one parameter vector."""
        return self.scale * jax.random.normal(key, (dimension,))

    def tempered(self, temperature: float) -> "Normal":
        """Return the prior whose density is this one's to the power 1 / temperature."""
        return Normal(scale=self.scale * math.sqrt(temperature))


@dataclass(frozen=True, kw_only=True)
class Laplace:
    """Independent Laplace distributions around zero; the standard deviation is sqrt(2) times `scale`."""

    scale: float = 1.0

    def __post_init__(self) -> None:
        check_number("scale", self.scale, positive=True)

    def bind(self, network: Any) -> "Laplace":
        """Return itself: it is the same for every network."""
        return self

    def log_prob(self, position: Position) -> Scalar:
        """Return the log density up to a constant."""
        standard = position / self.scale
        return -jnp.sum(standard * jnp.sign(standard))  # jnp.abs would have the slope 1 at zero, this has 0

    def sample(self, key: Key, dimension: int) -> Position:
        """Draw one parameter vector."""
        return self.scale * jax.random.laplace(key, (dimension,))

    def tempered(self, temperature: float) -> "Laplace":
        """Return the prior whose density is this one's to the power 1 / temperature."""
        return Laplace(scale=self.scale * temperature)


@dataclass(frozen=True, kw_only=True)
class StudentT:
    """Independent Student-t distributions around zero; the standard deviation is sqrt(df / (df - 2)) times `scale`.

    With `df` of 2 or less there is none: the tails are too heavy.
    """

    df: float = 3.0  # Fortuin et al. 2022
    scale: float = 1.0

    def __post_init__(self) -> None:
        check_number("df", self.df, positive=True)
        check_number("scale", self.scale, positive=True)

    def bind(self, network: Any) -> "StudentT":
        """Return itself: it is the same for every network."""
        return self

    def log_prob(self, position: Position) -> Scalar:
        """Return the log density up to a constant."""
        return -0.5 * (self.df + 1.0) * jnp.sum(jnp.log1p(jnp.square(position / self.scale) / self.df))

    def sample(self, key: Key, dimension: int) -> Position:
        """Draw one parameter vector."""
        return self.scale * jax.random.t(key, self.df, (dimension,))

    def tempered(self, temperature: float) -> "StudentT":
        """Return the prior whose density is this one's to the power 1 / temperature.

        Raises
        ------
        ValueError
            If that has no finite integral: the tails fall with the power (df + 1) / temperature, which must exceed 1.
        """
        df = (self.df + 1.0) / temperature - 1.0
        if df <= 0.0:
            raise ValueError(
                f"temperature must be below df + 1 = {self.df + 1.0:g} with a Student-t prior, or its tempered density "
                f"has no finite integral; got {temperature!r}."
            )
        return StudentT(df=df, scale=self.scale * math.sqrt(self.df / df))


Family = Normal | Laplace | StudentT
FAMILIES = (Normal, Laplace, StudentT)


@dataclass(frozen=True, kw_only=True)
class FanIn:
    """Weights of a layer have scale gain / sqrt(fan_in), all biases the scale `bias`.

    The scale is the family's own, as in the code of Fortuin et al. 2022: a standard deviation for `Normal`, but not for
    `Laplace` and `StudentT`. The family's scale multiplies all of them.
    """

    family: Family = field(default_factory=Normal)
    gain: float = _FAN_IN_GAIN
    bias: float = 1.0  # Fortuin et al. 2022

    def __post_init__(self) -> None:
        _check_family(self.family)
        check_number("gain", self.gain, positive=True)
        check_number("bias", self.bias, positive=True)

    def bind(self, network: Any) -> "Scaled":
        """Return the prior of this network's flat vector."""
        runs = []
        for layer in _layers(network):
            runs += [(layer.n_weights, float(self.gain) / math.sqrt(layer.fan_in)), (layer.n_biases, float(self.bias))]
        return Scaled(family=self.family, runs=tuple(runs))


@dataclass(frozen=True, kw_only=True)
class PerLayer:
    """Weights and biases of a layer have that layer's scale, first layer first; the family's scale multiplies it."""

    scales: tuple[float, ...]
    family: Family = field(default_factory=Normal)

    def __post_init__(self) -> None:
        if not isinstance(self.scales, tuple) or not self.scales:
            raise ValueError(f"scales must be a tuple of one number per layer; got {self.scales!r}.")
        for scale in self.scales:
            check_number("each entry of scales", scale, positive=True)
        _check_family(self.family)

    def bind(self, network: Any) -> "Scaled":
        """Return the prior of this network's flat vector.

        Raises
        ------
        ValueError
            If there is not one scale for each layer.
        """
        layers = _layers(network)
        if len(layers) != len(self.scales):
            raise ValueError(
                f"the prior has {len(self.scales)} scales but the network has {len(layers)} layers, hidden and output."
            )
        runs = tuple((layer.size, float(scale)) for layer, scale in zip(layers, self.scales, strict=True))
        return Scaled(family=self.family, runs=runs)


@dataclass(frozen=True, kw_only=True)
class Scaled:
    """A family whose scale is multiplied by one number per parameter, kept as runs of (count, number)."""

    family: Family
    runs: tuple[tuple[int, float], ...]

    def log_prob(self, position: Position) -> Scalar:
        """Return the log density up to a constant."""
        return self.family.log_prob(position / self._scales(position.dtype))

    def sample(self, key: Key, dimension: int) -> Position:
        """Draw one parameter vector."""
        draw = self.family.sample(key, dimension)
        return draw * self._scales(draw.dtype)

    def tempered(self, temperature: float) -> "Scaled":
        """Return the prior whose density is this one's to the power 1 / temperature."""
        return Scaled(family=self.family.tempered(temperature), runs=self.runs)

    def _scales(self, dtype: Any) -> Position:
        counts, scales = zip(*self.runs, strict=True)
        return jnp.asarray(np.repeat(scales, counts), dtype)


BUILT_IN = (*FAMILIES, FanIn, PerLayer)
# Words for priors, each with what makes it of a scale.
PRIORS: Mapping[str, Callable[[float], Prior]] = {
    "normal": lambda scale: Normal(scale=scale),
    "laplace": lambda scale: Laplace(scale=scale),
    "student_t": lambda scale: StudentT(scale=scale),
    "fan_in": lambda scale: FanIn(family=Normal(scale=scale)),
}


def choose_prior(prior: str | Prior, scale: float = 1.0) -> Prior:
    """Return the prior that a word and a scale stand for; an object stands for itself and has its own scale.

    Raises
    ------
    ValueError
        If there is no such prior, or an object comes with a scale besides.
    """
    check_number("prior_scale", scale, positive=True)
    if isinstance(prior, str) and prior in PRIORS:
        return PRIORS[prior](float(scale))
    if isinstance(prior, str | type) or not isinstance(prior, Prior):
        raise ValueError(f"prior must be one of {sorted(PRIORS)} or a prior object; got {prior!r}.")
    if scale != 1.0:
        raise ValueError(f"prior_scale must be 1.0 with a prior object, which has its own scale; got {scale!r}.")
    return prior


def _check_family(family: Any) -> None:
    if type(family) not in FAMILIES:
        raise ValueError(f"family must be Normal, Laplace or StudentT; got {family!r}.")


def _layers(network: Any) -> tuple[Any, ...]:
    layers = getattr(network, "layers", None)
    if layers is None:
        raise ValueError(f"a prior by layers needs a network that lists its layers; got {network!r}.")
    return layers
