"""Array aliases shared by all modules.

Axes are in the order chain, draw, row, feature wherever a user can see them. Inside compiled code rows
come last (feature, row), so that vector instructions run along rows.
"""

# pyright: reportUnknownMemberType=false
# The stubs of jax.numpy leave the type of an argument open, `device`, that is not used here.

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias, runtime_checkable

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Integer, PRNGKeyArray

Key = PRNGKeyArray
Position = Float[Array, " d"]  # all parameters of one chain, raveled once
Scalar = Float[Array, ""]
Count = int | Int[Array, ""]  # a number of steps or draws; compiled code gets it as an argument
Number = float | Float[Array, ""]
ChainNumber = Integer[Array, ""]  # of a chain in its run; names its random stream
Features = Float[Array, "feature row"]
Outputs = Float[Array, "output row"]
# Numbers, class codes 0..C-1, or several numbers for each row, such as limits.
Response = Float[Array, " row"] | Int[Array, " row"] | Float[Array, "row part"]
# Arrays in any nesting, such as what a phase carries or the weights of another library's network. Only its maker knows
# which nesting, and no type follows it through jax.tree; so it is Any, by this name and with this meaning alone.
PyTree: TypeAlias = Any
MclmcState = tuple[Position, Position, Scalar, Position]  # position, velocity, log density, gradient
MclmcStep = tuple[Position, Position, Scalar, Position, Scalar, Bool[Array, ""]]  # and energy change, whether finite
NativeStep = Callable[[Key, MclmcState, Scalar, Scalar], MclmcStep]  # of key, state, step size and L


@runtime_checkable
class Target(Protocol):
    """What a sampler sees: an unnormalized log density on flat vectors, a hashable pytree.

    A class derived from this one has to say the first two methods. The others have defaults, those of a target without
    rows: it is its own and only mini-batch, and its own and only part.
    """

    def logdensity(self, position: Position) -> Scalar:
        """Return the unnormalized log density."""
        ...

    def value_and_grad(self, position: Position) -> tuple[Scalar, Position]:
        """Return the unnormalized log density and its gradient."""
        ...

    def for_chain(self, chain: ChainNumber) -> "Target":
        """Return the target of one chain, by its number; most targets are the same for all."""
        return self

    def native_step(self, key: Key, position: Position) -> NativeStep | None:
        """Return the native form of one step of `samplers/_mclmc.py` on this target, or None."""
        return None

    def shuffled(self, key: Key) -> Int[Array, " group"]:
        """Return an order of the rows in which an epoch goes through them."""
        return jnp.zeros(1, jnp.int32)

    def n_minibatches(self, batch_size: int) -> Int[Array, ""]:
        """Return how many whole mini-batches an epoch has."""
        return jnp.ones((), jnp.int32)

    def minibatch(
        self, order: Int[Array, " group"], index: Int[Array, ""], batch_size: int, *, scaled: bool = True
    ) -> "Target":
        """Return mini-batch `index` of an epoch; a batch that holds all rows is this target itself."""
        return self

    def random_rows(self, key: Key, size: int, *, scaled: bool = True) -> "Target":
        """Return the target with that many of its rows, drawn without replacement; with all rows it is this one."""
        return self

    def prior_gradient(self, position: Position) -> Position:
        """Return the gradient of what needs no rows; where there are none, nothing is apart from the rest."""
        return jnp.zeros_like(position)

    def random_share(self, size: int) -> Number:
        """Return which share of the rows `random_rows` draws."""
        return 1.0

    def with_softmax_twice(self) -> "Target":
        """Return the target whose log likelihood takes the softmax of class probabilities; see samplers/pgps.py."""
        raise ValueError("softmax_twice needs a network that predicts classes.")

    def minibatch_share(self, batch_size: int) -> Number:
        """Return which share of the rows a mini-batch has."""
        return 1.0

    def n_parts(self, size: int) -> int:
        """Return into how many parts of `size` rows this target falls."""
        return 1

    def part(self, index: Int[Array, ""] | int, size: int) -> "Target":
        """Return one of the parts; all of them add up to this target."""
        return self
