"""Attention networks for texts: embeddings, one layer of attention, the mean over positions, dense layers."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import jax
import jax.numpy as jnp

from mile import _registry
from mile._checks import check_choice, check_count, check_flag, check_widths
from mile._types import Features, Key, Outputs, Position
from mile.networks._fixed import FixedArray
from mile.networks._layers import Layer, places
from mile.networks._pooling import pooled_attention
from mile.networks._units import ACTIVATIONS, INITIALIZERS, draw_start
from mile.networks.base import AbstractNetwork, Attend, describe_hidden

PADDING = 0  # the token that fills up texts
_MOST_TOKENS = 1 << 24  # whole numbers below it are exact in float32, in which rows are kept
_EMBEDDINGS = ("tokens", "positions")  # names of the layers that a fixed embedding replaces


@_registry.network("attention")
@dataclass(frozen=True, kw_only=True)
class Attention(AbstractNetwork):
    """A classifier of token sequences: the architecture of the paper's ATT v1, v2 and v3.

    Token and position embeddings are added, every position attends to every other in `heads` heads, the mean over
    positions goes through dense layers. There is no layer normalization, as in the paper's counts.

    Features of a row are token numbers from 0 to vocabulary - 1; 0 is padding and comes last. The flat vector holds,
    layer by layer, the weights in row-major order [in, out] and then the biases, if there are any.

    Attributes
    ----------
    vocabulary
        Number of tokens, padding included.
    context
        Tokens of a text.
    width
        Width of the embedding of a token.
    heads, attention_width
        Heads, and the width of queries, keys and values of all heads together.
    hidden
        Widths of the dense layers between the mean and the outputs.
    n_outputs
        None: open, an estimator takes it from the data.
    biases
        Whether queries, keys, values and all layers after them have biases.
    pretrained
        Whether the embeddings are trained beforehand and then fixed. Until they are, `embedding` is None and the
        network cannot be evaluated.
    embedding
        Fixed embeddings, the rows of tokens and then those of positions. None and not `pretrained`: they are sampled.
    masked
        Whether padding is neither attended to nor part of the mean. False is the way of the reference implementation,
        where padding is a token like any other.
    activation
        Between dense layers, once.
    initializer
        Of all layers but embeddings, which start with variance 1 / width.

    Examples
    --------
    >>> from mile.networks import ATT_V2
    >>> ATT_V2.sized((70,), 2).dimension
    55778
    """

    vocabulary: int
    context: int = 70  # paper, "Sequential networks"
    width: int
    heads: int = 8
    attention_width: int = 64
    hidden: tuple[int, ...] = (32,)
    n_outputs: int | None = None
    biases: bool = True
    pretrained: bool = False
    embedding: FixedArray | None = None
    masked: bool = True
    activation: str = "gelu"  # reference implementation; the paper does not say
    initializer: str = "lecun_normal"

    def __post_init__(self) -> None:
        check_count("vocabulary", self.vocabulary, 2)
        if self.vocabulary > _MOST_TOKENS:
            raise ValueError(f"vocabulary can be at most {_MOST_TOKENS:,}; got {self.vocabulary:,}.")
        check_count("context", self.context)
        check_count("width", self.width)
        check_count("heads", self.heads)
        check_count("attention_width", self.attention_width)
        if self.attention_width % self.heads:
            raise ValueError(
                f"attention_width must be a multiple of heads, so that all have the same width; got "
                f"{self.attention_width} and {self.heads}."
            )
        check_widths("hidden", self.hidden)
        if self.n_outputs is not None:
            check_count("n_outputs", self.n_outputs)
        check_flag("biases", self.biases)
        check_flag("pretrained", self.pretrained)
        check_flag("masked", self.masked)
        check_choice("activation", self.activation, ACTIVATIONS)
        check_choice("initializer", self.initializer, INITIALIZERS)
        wanted = (self.vocabulary + self.context, self.width)
        if self.embedding is not None and (
            not isinstance(self.embedding, FixedArray) or self.embedding.shape != wanted
        ):
            raise ValueError(
                f"embedding must be a FixedArray of shape {wanted}, one row for each token and then one for each "
                f"position; got {self.embedding!r}."
            )

    def sized(self, input_shape: tuple[int, ...], n_outputs: int) -> "Attention":
        """Return this network for texts of `context` tokens.

        Raises
        ------
        ValueError
            If the shape is another one, or the number of outputs contradicts what is set.
        """
        if tuple(input_shape) != self.input_shape:
            raise ValueError(
                f"the network takes texts of {self.context} tokens; got rows of shape {tuple(input_shape)}."
            )
        if self.n_outputs not in (None, n_outputs):
            raise ValueError(f"the network has {self.n_outputs} outputs but {n_outputs} are needed.")
        return replace(self, n_outputs=n_outputs)

    def with_free_embedding(self) -> "Attention":
        """Return this network with its embeddings as parameters, the form in which they are pretrained."""
        return replace(self, pretrained=False, embedding=None)

    @property
    def has_fixed_embedding(self) -> bool:
        """Whether the embeddings are fixed, not parameters."""
        return self.pretrained or self.embedding is not None

    @property
    def input_shape(self) -> tuple[int]:
        """One token number for each place."""
        return (self.context,)

    @property
    def n_inputs(self) -> int:
        """Tokens of a text."""
        return self.context

    @property
    def reads(self) -> str:
        """What a row is, in words."""
        return self.describe_rows()

    def describe_rows(self) -> str:
        """Say what texts it takes."""
        return f"texts of up to {self.context} tokens"

    def describe_layers(self) -> str:
        """Name the hidden layers."""
        return describe_hidden(self.hidden, self.activation)

    @property
    def dense_sizes(self) -> tuple[int, ...]:
        """Width of the mean, widths of the dense layers, number of outputs."""
        if self.n_outputs is None:
            raise ValueError("n_outputs is open: call sized(input_shape, n_outputs).")
        return (self.width, *self.hidden, self.n_outputs)

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The runs of the flat vector."""
        sizes = [(name, self.width, self.attention_width) for name in ("queries", "keys", "values")]
        sizes.append(("attention output", self.attention_width, self.width))
        sizes += [(f"dense {number}", *pair) for number, pair in enumerate(pairwise(self.dense_sizes), 1)]
        found = [Layer(name, n * m, m if self.biases else 0, n) for name, n, m in sizes]
        if not self.has_fixed_embedding:
            rows = zip(_EMBEDDINGS, (self.vocabulary, self.context), strict=True)
            found = [*(Layer(name, n * self.width, 0, 1) for name, n in rows), *found]
        return tuple(found)

    @property
    def dimension(self) -> int:
        """Number of parameters."""
        return sum(layer.size for layer in self.layers)

    @property
    def row_floats(self) -> int:
        """Floats of intermediate results per text.

        Attention itself is not among them: its blocks are of a fixed size. Nor are the projections of single tokens,
        of which there are at most as many as the vocabulary has.
        """
        per_position = 2 + 2 * self.heads  # token and weight; normalizer and mean attention of each head
        return self.context * per_position + self.attention_width + sum(self.dense_sizes)

    def init(self, key: Key) -> Position:
        """Draw starting weights; biases start at zero."""
        runs = []
        for layer in self.layers:
            # The features of an embedding share a variance of one, as the inputs of a unit do.
            fan_in = self.width if layer.name in _EMBEDDINGS else layer.fan_in
            runs.append((fan_in, max(1, layer.n_weights // fan_in), layer.n_weights, layer.n_biases))
        return draw_start(key, self.initializer, runs)

    def apply(self, position: Position, x: Features) -> Outputs:
        """Evaluate the network on every text.

        Raises
        ------
        ValueError
            If the embeddings are still to be pretrained.
        """
        return self.apply_with(pooled_attention, position, x)

    @property
    def attends(self) -> bool:
        """Whether `apply_with` computes this network; a class derived from this one may compute something else."""
        return type(self) is Attention

    def apply_with(self, attend: Attend, position: Position, x: Features) -> Outputs:
        """Evaluate the network on every text; `attend` is a way to compute the attention.

        Raises
        ------
        ValueError
            If the embeddings are still to be pretrained.
        """
        table, layers = self._weights(position)
        ids = x.T.astype(jnp.int32)
        counted = (ids != PADDING) if self.masked else jnp.ones(ids.shape, bool)
        counted = counted.astype(position.dtype)
        weights = counted / jnp.maximum(counted.sum(1, keepdims=True), 1.0)
        attended = self._attended(attend, table, layers[:3], ids, weights)
        # The mean over positions is taken before the projection, which is linear; of padding alone it is zero.
        output, *dense = layers[3:]
        hidden = jnp.einsum("io,ri->or", output.weights, attended) + output.bias[:, None] * weights.sum(1)
        for index, layer in enumerate(dense):
            hidden = ACTIVATIONS[self.activation](hidden) if index > 0 else hidden
            hidden = jnp.einsum("io,ir->or", layer.weights, hidden) + layer.bias[:, None]
        return hidden

    def _attended(
        self,
        attend: Attend,
        table: "_Table",
        projections: list["_Dense"],
        ids: jax.Array,
        weights: jax.Array,
    ) -> jax.Array:
        query, key, value = projections
        scale = 1.0 / math.sqrt(self.attention_width // self.heads)
        matrix = jnp.concatenate([query.weights * scale, key.weights, value.weights], axis=1)
        bias = jnp.concatenate([query.bias * scale, key.bias, value.bias])
        rows, index = table.tokens, ids
        if ids.size < self.vocabulary:
            # Fewer tokens than the vocabulary has: project those that occur, each in its place.
            rows = jnp.take(rows, ids.reshape(-1), axis=0, mode="clip")
            index = jnp.arange(ids.size, dtype=jnp.int32).reshape(ids.shape)
        return attend(self.heads, rows @ matrix, table.positions @ matrix + bias, index, weights)

    def _weights(self, position: Position) -> tuple["_Table", list["_Dense"]]:
        """Return the embeddings, and the layers after them in order."""
        found = iter(zip(self.layers, places(self.layers), strict=True))
        if not self.has_fixed_embedding:
            table = _Table(*(position[where].reshape(-1, self.width) for _, where in (next(found), next(found))))
        elif self.embedding is None:
            raise ValueError(
                "the embedding is to be pretrained: train it with mile.ensemble.embeddings.pretrain_embedding, or give "
                "one."
            )
        else:
            fixed = self.embedding.values
            halves = fixed[: self.vocabulary], fixed[self.vocabulary :]
            table = _Table(*(jnp.asarray(half, position.dtype) for half in halves))
        return table, list(self._dense(position, found))

    def _dense(self, position: Position, found: Iterator[tuple[Layer, slice]]) -> Iterator["_Dense"]:
        for layer, where in found:
            cut = position[where]
            weights = cut[: layer.n_weights].reshape(layer.fan_in, -1)
            bias = cut[layer.n_weights :] if self.biases else jnp.zeros(weights.shape[1], cut.dtype)
            yield _Dense(weights, bias)


class _Table(NamedTuple):
    tokens: jax.Array  # [token, feature]
    positions: jax.Array  # [position, feature]


class _Dense(NamedTuple):
    weights: jax.Array  # [in, out]
    bias: jax.Array


# Paper, "Sequential networks"; sizes reproduce its parameter counts for two classes: 68,448, 55,778 and 106,190. The
# count of v1 needs a dense layer of 96 without biases where the text says 64.
ATT_V1 = Attention(vocabulary=1_000, width=48, hidden=(96,), biases=False)
ATT_V2 = Attention(vocabulary=10_000, width=192, hidden=(32,), pretrained=True)
ATT_V3 = Attention(vocabulary=10_000, width=192, heads=10, attention_width=100, hidden=(128, 32), pretrained=True)
