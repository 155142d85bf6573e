"""Rules that give each layer a scale of its own, in families of one scale.

A rule knows no network: `bind` turns it into a prior of the flat vector. A family binds to itself.
"""

import math
from dataclasses import dataclass, field

import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike

from mile import _registry
from mile._checks import check_number, check_tuple
from mile._types import Key, Position, Scalar
from mile.priors.base import Accelerated, FlatPrior, Layered, NativePrior, layers_of
from mile.priors.normal import Normal

_FAN_IN_GAIN = math.sqrt(2.0)  # Fortuin et al. 2022, as their code has it; the variances are those of He et al. 2015


@_registry.prior("fan_in")
@dataclass(frozen=True, kw_only=True)
class FanIn:
    """Weights of a layer have scale gain / sqrt(fan_in), all biases the scale `bias`.

    The scale is the family's own, as in the code of Fortuin et al. 2022: a standard deviation for `Normal`, but not for
    `Laplace` and `StudentT`. The family's scale multiplies all of them.
    """

    family: FlatPrior = field(default_factory=Normal)
    gain: float = _FAN_IN_GAIN
    bias: float = 1.0  # Fortuin et al. 2022

    def __post_init__(self) -> None:
        _check_family(self.family)
        check_number("gain", self.gain, positive=True)
        check_number("bias", self.bias, positive=True)

    @classmethod
    def of_scale(cls, scale: float) -> "FanIn":
        """Return the rule with normal distributions of that scale, times each layer's own."""
        return FanIn(family=Normal(scale=scale))

    def bind(self, network: Layered) -> "Scaled":
        """Return the prior of this network's flat vector."""
        runs = []
        for layer in layers_of(network):
            runs += [(layer.n_weights, float(self.gain) / math.sqrt(layer.fan_in)), (layer.n_biases, float(self.bias))]
        return Scaled(family=self.family, runs=tuple(runs))


@_registry.prior("per_layer")
@dataclass(frozen=True, kw_only=True)
class PerLayer:
    """Weights and biases of a layer have that layer's scale, first layer first; the family's scale multiplies it."""

    scales: tuple[float, ...]
    family: FlatPrior = field(default_factory=Normal)

    def __post_init__(self) -> None:
        if not check_tuple("scales", self.scales, "one number per layer"):
            raise ValueError(f"scales must be a tuple of one number per layer; got {self.scales!r}.")
        for scale in self.scales:
            check_number("each entry of scales", scale, positive=True)
        _check_family(self.family)

    @classmethod
    def of_scale(cls, scale: float) -> "PerLayer":
        """Refuse: one scale is not enough."""
        raise ValueError("prior 'per_layer' needs one scale for each layer: pass PerLayer(scales=(1.0, 0.5, 0.5)).")

    def bind(self, network: Layered) -> "Scaled":
        """Return the prior of this network's flat vector.

        Raises
        ------
        ValueError
            If the number of scales is not the number of layers.
        """
        layers = layers_of(network)
        if len(layers) != len(self.scales):
            raise ValueError(
                f"the prior has {len(self.scales)} scales but the network has {len(layers)} layers, hidden and output."
            )
        runs = tuple((layer.size, float(scale)) for layer, scale in zip(layers, self.scales, strict=True))
        return Scaled(family=self.family, runs=runs)


@dataclass(frozen=True, kw_only=True)
class Scaled:
    """A family whose scale is multiplied by one number per parameter, kept as runs of (count, number)."""

    family: FlatPrior
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

    def native_form(self) -> NativePrior | None:
        """Return what the native kernel must know, if it knows the family."""
        form = self.family.native_form() if isinstance(self.family, Accelerated) else None
        return None if form is None else form._replace(scale=form.scale * self._numbers())

    def _scales(self, dtype: DTypeLike) -> Position:
        return jnp.asarray(self._numbers(), dtype)

    def _numbers(self) -> np.ndarray:
        counts, scales = zip(*self.runs, strict=True)
        return np.repeat(scales, counts)


def families() -> list[type]:
    """Return the registered priors that have a density of their own: those whose scale a rule can multiply."""
    return [known for known in _registry.prior.classes.values() if issubclass(known, FlatPrior)]


def _check_family(family: FlatPrior) -> None:
    if type(family) not in families():
        names = ", ".join(known.__name__ for known in families())
        raise ValueError(f"family must be one of {names}; got {family!r}.")
