"""Array aliases shared by all modules.

Axes are in the order chain, draw, row, feature wherever a user can see them. Inside compiled code rows
come last (feature, row), so that vector instructions run along rows.
"""

from typing import Protocol, runtime_checkable

from jaxtyping import Array, Float, Int, PRNGKeyArray

Key = PRNGKeyArray
Position = Float[Array, " d"]  # all parameters of one chain, raveled once
Scalar = Float[Array, ""]
Count = int | Int[Array, ""]  # a number of steps or draws; compiled code gets it as an argument
Number = float | Float[Array, ""]
Features = Float[Array, "feature row"]
Outputs = Float[Array, "output row"]
Response = Float[Array, " row"] | Int[Array, " row"]  # numbers, or class codes 0..C-1


@runtime_checkable
class Target(Protocol):
    """What a sampler sees: an unnormalized log density on flat vectors, a hashable pytree."""

    def logdensity(self, position: Position) -> Scalar:
        """Return the unnormalized log density."""
        ...

    def value_and_grad(self, position: Position) -> tuple[Scalar, Position]:
        """Return the unnormalized log density and its gradient."""
        ...
