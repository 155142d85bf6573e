"""Priors whose scales are unknown: one for each group of weights, integrated out in closed form.

Weights of a group are normal with a common variance v, and v has the inverse-gamma distribution of shape degrees / 2
and scale degrees * scale^2 / 2. Without v, the n weights of a group have a multivariate Student-t distribution,

    log p(w) = -1/2 (degrees + n) log(1 + |w|^2 / (degrees * scale^2)),

so nothing but weights is sampled. Given the weights, v is inverse-gamma again, and what the data say about it is known
in closed form: see `Grouped.scales`.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.special import gammaln

from mile import _registry
from mile._checks import check_choice, check_number, check_scale
from mile._types import Key, Position, Scalar
from mile.priors.base import Layered, LayerSizes, NativePrior, layers_of

GROUPS = ("input", "layer", "unit")
NORMAL, WHOLE, ROWS, COLUMNS = "normal", "whole", "rows", "columns"  # what shares a scale in a block


@runtime_checkable
class _HasInputs(Protocol):
    """What groups by input read of a network besides its layers."""

    @property
    def n_inputs(self) -> int:
        """Features of a row."""
        ...


@_registry.prior("hierarchical")
@dataclass(frozen=True, kw_only=True)
class Hierarchical:
    """Weights whose scale is unknown and common to a layer, a unit or an input; it is integrated out.

    Parameters
    ----------
    groups
        Weights with a common scale: those of a "layer"; those that enter a "unit"; or those that leave an "input",
        which is automatic relevance determination, with one scale for each later layer.
    degrees
        Degrees of freedom of the unknown scale: the fewer, the farther it may be from `scale`.
    scale
        Where the unknown scale is expected.
    bias
        Standard deviation of all biases, which are normal.
    """

    groups: str = "layer"
    degrees: float = 2.0
    scale: float = 1.0
    bias: float = 1.0

    def __post_init__(self) -> None:
        check_choice("groups", self.groups, GROUPS)
        check_number("degrees", self.degrees, positive=True)
        check_scale("scale", self.scale)
        check_scale("bias", self.bias)

    @classmethod
    def of_scale(cls, scale: float) -> "Hierarchical":
        """Return the prior with a scale for each layer, expected to be that one."""
        return Hierarchical(scale=scale)

    def bind(self, network: Layered) -> "Grouped":
        """Return the prior of this network's flat vector.

        Raises
        ------
        ValueError
            If the network does not say which weights belong to a unit or to an input.
        """
        layers = layers_of(network)
        if self.groups == "input" and not (isinstance(network, _HasInputs) and layers[0].fan_in == network.n_inputs):
            raise ValueError("groups='input' needs a network whose first layer has a weight for each input and unit.")
        blocks = [block for place, layer in enumerate(layers) for block in self._blocks(place, layer)]
        return Grouped(
            blocks=tuple(blocks), degrees=float(self.degrees), scale=float(self.scale), bias=float(self.bias)
        )

    def _blocks(self, place: int, layer: LayerSizes) -> Iterator["Block"]:
        kind = COLUMNS if self.groups == "unit" else ROWS if self.groups == "input" and place == 0 else WHOLE
        if kind != WHOLE and layer.fan_in * layer.n_biases != layer.n_weights:
            raise ValueError(
                f"groups={self.groups!r} needs layers of weights [in, out] and a bias for each unit; layer {place + 1} "
                f"has {layer.n_weights} weights, {layer.n_biases} biases and a fan-in of {layer.fan_in}."
            )
        if layer.n_weights:
            rows = 1 if kind == WHOLE else layer.fan_in
            yield Block(kind, rows, layer.n_weights // rows)
        if layer.n_biases:
            yield Block(NORMAL, 1, layer.n_biases)


class Block(NamedTuple):
    """A run of the flat vector, a matrix in row-major order, and which of its parts share a scale."""

    kind: str
    rows: int
    columns: int

    @property
    def size(self) -> int:
        """Number of parameters."""
        return self.rows * self.columns

    @property
    def n_groups(self) -> int:
        """Number of unknown scales."""
        return {NORMAL: 0, WHOLE: 1, ROWS: self.rows, COLUMNS: self.columns}[self.kind]

    @property
    def group_size(self) -> int:
        """Weights that share a scale."""
        return self.size // max(self.n_groups, 1)

    @property
    def numbers(self) -> np.ndarray:
        """The group of each parameter, in order."""
        row, column = np.divmod(np.arange(self.size), self.columns)
        return {ROWS: row, COLUMNS: column}.get(self.kind, np.zeros(self.size, int))


@dataclass(frozen=True, kw_only=True)
class Grouped:
    """The prior of a flat vector in groups with unknown scales; its log density is divided by a temperature."""

    blocks: tuple[Block, ...]
    degrees: float
    scale: float
    bias: float
    temperature: float = 1.0

    def log_prob(self, position: Position) -> Scalar:
        """Return the log density up to a constant."""
        total, start = jnp.zeros((), position.dtype), 0
        for block in self.blocks:
            part = position[start : start + block.size]
            start += block.size
            if block.kind == NORMAL:
                total -= 0.5 * jnp.sum(jnp.square(part / self.bias))
            else:
                ratios = self._squares(block, part / self.scale) / self.degrees
                total -= 0.5 * (self.degrees + block.group_size) * jnp.sum(jnp.log1p(ratios))
        return total / self.temperature

    def sample(self, key: Key, dimension: int) -> Position:
        """Draw one parameter vector: first the scales, then weights of these scales."""
        normal_key, *keys = jax.random.split(key, 1 + len(self.blocks))
        parts = []
        for block, block_key in zip(self.blocks, keys, strict=True):
            if block.kind == NORMAL:
                parts.append(jnp.full(block.size, self.bias * math.sqrt(self.temperature)))
                continue
            # v is degrees * scale^2 / chi-square, and a chi-square is twice a gamma variable.
            gamma = jax.random.gamma(block_key, 0.5 * self._degrees_of(block), (block.n_groups,))
            parts.append((self.scale * jnp.sqrt(0.5 * self.degrees / gamma))[block.numbers])
        return jnp.concatenate(parts) * jax.random.normal(normal_key, (dimension,))

    def tempered(self, temperature: float) -> "Grouped":
        """Return the prior whose density is this one's to the power 1 / temperature.

        A Student-t distribution to a power is one with other degrees of freedom.

        Raises
        ------
        ValueError
            If that has no finite integral: the power of the tails must exceed the number of weights in a group.
        """
        largest = max((block.group_size for block in self.blocks if block.n_groups), default=0)
        if largest and largest * temperature * self.temperature >= self.degrees + largest:
            most = (self.degrees + largest) / (largest * self.temperature)
            raise ValueError(
                f"temperature must be below {most:g} with a hierarchical prior of {self.degrees:g} degrees and "
                f"{largest} weights in a group, or its tempered density has no finite integral; got {temperature!r}."
            )
        return replace(self, temperature=self.temperature * temperature)

    def native_form(self) -> NativePrior | None:
        """Return what the native kernel must know."""
        scales = np.array([self.scale, self.bias])
        return NativePrior("grouped", scales, self.degrees, 1.0 / self.temperature, self.blocks)

    def scales(self, draws: Float[np.ndarray, "*draw d"]) -> Float[np.ndarray, " group"]:
        """Return the posterior mean of each group's scale, first layer first, from draws of the flat vector.

        Given weights, the variance v is inverse-gamma with shape a = (degrees + n) / 2 and scale
        b = (degrees * scale^2 + |w|^2) / 2, so the mean of its root is sqrt(b) Gamma(a - 1/2) / Gamma(a).
        """
        draws = np.asarray(draws, np.float64)
        found, start = [], 0
        for block in self.blocks:
            part = draws[..., start : start + block.size].reshape(-1, block.rows, block.columns)
            start += block.size
            if block.n_groups:
                squares = np.square(part).sum(axis=_axes(block)).reshape(len(part), block.n_groups)
                a = 0.5 * (self._degrees_of(block) + block.group_size)
                b = 0.5 * (self.degrees * self.scale**2 + squares)
                found.append(np.sqrt(b).mean(axis=0) * np.exp(gammaln(a - 0.5) - gammaln(a)))
        return np.concatenate(found)

    @property
    def has_scales_of_inputs(self) -> bool:
        """Whether each input has a scale of its own."""
        return self.blocks[0].kind == ROWS

    def relevance(self, draws: Float[np.ndarray, "*draw d"]) -> Float[np.ndarray, " input"]:
        """Return the posterior mean of the scale of each input's weights: near zero for one that does not matter.

        Raises
        ------
        ValueError
            If inputs have no scales of their own.
        """
        if not self.has_scales_of_inputs:
            raise ValueError("inputs have scales of their own only under Hierarchical(groups='input').")
        return self.scales(draws)[: self.blocks[0].rows]

    def _degrees_of(self, block: Block) -> float:
        """Return the degrees of freedom of the tempered density."""
        return (self.degrees + block.group_size) / self.temperature - block.group_size

    def _squares(self, block: Block, part: Position) -> Float[Array, " group"]:
        return jnp.atleast_1d(jnp.square(part).reshape(block.rows, block.columns).sum(axis=_axes(block)))


def _axes(block: Block) -> tuple[int, ...]:
    """Return the axes over which a group is added up, counted from the last."""
    return {WHOLE: (-2, -1), ROWS: (-1,), COLUMNS: (-2,)}[block.kind]
