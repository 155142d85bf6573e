"""Attention networks whose costly part, attention averaged over positions, is computed by the native kernel on CPU."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float, Int

from mile._types import Features, Outputs, Position
from mile.native._library import library
from mile.native._ops import _ffi, _floats
from mile.networks import _pooling as plain
from mile.networks.base import Network


def accelerates(network: Network, dtype: DTypeLike) -> bool:
    """Say whether `apply` uses the kernel on CPU."""
    return network.attends and dtype == jnp.float32 and library() is not None


def apply(network: Network, position: Position, x: Features) -> Outputs:
    """Evaluate a network, with the kernel's attention where that fits."""
    if accelerates(network, position.dtype):
        return network.apply_with(pooled_attention, position, x)
    return network.apply(position, x)


def pooled_attention(
    heads: int,
    tokens: Float[Array, "token three_widths"],
    positions: Float[Array, "position three_widths"],
    index: Int[Array, "text position"],
    weights: Float[Array, "text position"],
) -> Float[Array, "text width"]:
    """Compute the same as the function of this name in `networks/_pooling.py`."""
    return _pooled(heads, tokens, positions, index, weights)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _pooled(heads: int, tokens: Array, positions: Array, index: Array, weights: Array) -> Array:
    return _forward(heads, tokens, positions, index, weights)[0]


def _forward(heads: int, tokens: Array, positions: Array, index: Array, weights: Array) -> tuple[Array, tuple]:
    n_texts, context = index.shape

    def native(*arguments: Array) -> tuple[Array, Array, Array]:
        shapes = (_floats(n_texts, tokens.shape[1] // 3), *[_floats(n_texts, heads, context)] * 2)
        return tuple(_ffi("mile_attend", shapes)(*arguments, heads=np.int64(heads)))

    arguments = (tokens, positions, index, weights)
    pooled, normalizer, attention = jax.lax.platform_dependent(
        *arguments, cpu=native, default=partial(plain.over_blocks, heads)
    )
    return pooled, (*arguments, normalizer, attention)


def _backward(heads: int, kept: tuple, slope: Array) -> tuple[Array, Array, None, None]:
    tokens, positions = kept[:2]

    def native(*arguments: Array) -> tuple[Array, Array]:
        shapes = (_floats(*tokens.shape), _floats(*positions.shape))
        return tuple(_ffi("mile_attend_slopes", shapes)(*arguments, heads=np.int64(heads)))

    default = partial(plain.slopes_over_blocks, heads)
    of_tokens, of_positions = jax.lax.platform_dependent(*kept, slope, cpu=native, default=default)
    return of_tokens, of_positions, None, None


_pooled.defvjp(_forward, _backward)
