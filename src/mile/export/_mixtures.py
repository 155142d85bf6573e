"""Mixtures over draws as graphs: averages, and quantiles by a loop."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtri

from mile.export._graph import BOOL, DOUBLE, INT64, Graph, Value
from mile.likelihoods.weights import DrawWeights

_TOLERANCE = 1e-7  # of the distribution function, which is in float32
_MOST_STEPS = 60


@dataclass(frozen=True)
class Averages:
    """Averages over draws, which are the axis before the last."""

    weights: DrawWeights

    def mean(self, of_draws: Value, *, trailing: int = 1) -> Value:
        """Return the mean over draws, which have so many axes after theirs."""
        graph, axis = of_draws.graph, -1 - trailing
        if self.weights.values is None:
            return graph.op("ReduceMean", of_draws, axes=[axis], keepdims=0)
        weighted = of_draws * self.weights.values.reshape(-1, *[1] * trailing)
        return graph.op("ReduceSum", weighted, graph.integers(axis), keepdims=0)


class AbstractComponents(ABC):
    """The distribution of each row under each draw, shape (draws, rows), on the standardized scale."""

    @property
    @abstractmethod
    def mean(self) -> Value:
        """Means."""

    @property
    @abstractmethod
    def variance(self) -> Value:
        """Variances."""

    @abstractmethod
    def evaluate(self, y: Value) -> tuple[Value, Value]:
        """Return distribution function and density at y, shape (levels, 1, rows), for each draw."""

    @abstractmethod
    def quantile(self, level: float) -> Value:
        """Return the quantiles at one level."""


@dataclass(frozen=True, eq=False)
class NormalComponents(AbstractComponents):
    """Normal distributions."""

    location: Value
    scale: Value

    @property
    def mean(self) -> Value:
        """Locations."""
        return self.location

    @property
    def variance(self) -> Value:
        """Squared scales."""
        return self.scale * self.scale

    def evaluate(self, y: Value) -> tuple[Value, Value]:
        """Return both; the error function is in float32, because runtimes have no other."""
        z = (y - self.location) / self.scale
        graph = z.graph
        cdf = (graph.op("Erf", (z * np.sqrt(0.5)).single).double + 1.0) * 0.5
        return cdf, graph.op("Exp", z * z * -0.5) / self.scale * (1.0 / np.sqrt(2.0 * np.pi))

    def quantile(self, level: float) -> Value:
        """Return the quantiles at one level."""
        return self.location + self.scale * float(ndtri(level))


def quantiles_of(components: AbstractComponents, averages: Averages, levels: np.ndarray, guess: Value) -> Value:
    """Return the quantiles of each row's mixture, shape (levels, rows), by Newton's method inside a bracket.

    Where a step leaves the bracket, bisection takes over. The best point so far is kept, because steps below the
    rounding of the distribution function lead nowhere. `guess` is where to begin, shape (levels, rows).
    """
    graph = guess.graph
    ends = [components.quantile(level) for level in levels]
    # The smallest and the largest quantile of the components hold that of the mixture between them.
    lower, upper = (
        _stacked([graph.op(kind, end, axes=[0], keepdims=0) for end in ends]) for kind in ("ReduceMin", "ReduceMax")
    )
    start = graph.op("Min", graph.op("Max", guess, lower), upper)
    worst = start * 0.0 + 1.0
    states = [lower, upper, start, start, worst]
    return graph.loop(_MOST_STEPS, states, _step(graph, components, averages, levels))[3]


def _step(graph: Graph, components: AbstractComponents, averages: Averages, levels: np.ndarray) -> Graph:
    body, shape = graph.body(), [len(levels), None]
    body.input(body.fresh(), INT64, [])
    body.input(body.fresh(), BOOL, [])
    lower, upper, y, best, least = (body.input(body.fresh(), DOUBLE, shape) for _ in range(5))
    cdf, density = components.evaluate(body.op("Unsqueeze", y, body.integers(1)))
    error = averages.mean(cdf) - levels[:, None]
    distance = body.op("Abs", error)
    best = body.op("Where", body.op("Less", distance, least), y, best)
    least = body.op("Min", distance, least)
    lower = body.op("Where", body.op("Less", error, 0.0), y, lower)
    upper = body.op("Where", body.op("Greater", error, 0.0), y, upper)
    newton = y - error / averages.mean(density)
    inside = body.op("And", body.op("Greater", newton, lower), body.op("Less", newton, upper))  # NaN is not
    following = body.op("Where", inside, newton, (lower + upper) * 0.5)
    largest = body.op("ReduceMax", least, keepdims=0)
    body.output(body.op("Greater", largest, _TOLERANCE), BOOL, [])
    for state in (lower, upper, following, best, least):
        body.output(state, DOUBLE, shape)
    return body


def _stacked(rows: list[Value]) -> Value:
    graph = rows[0].graph
    return graph.op("Concat", *(graph.op("Unsqueeze", row, graph.integers(0)) for row in rows), axis=0)
