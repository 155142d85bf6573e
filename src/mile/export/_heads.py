"""What networks' outputs say of y as graphs: moments and quantiles of numbers, probabilities of classes."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from mile.export._exact import ByClass
from mile.export._graph import DOUBLE, FLOAT, INT64, STRING, Graph, Value
from mile.export._mixtures import AbstractComponents, Averages, NormalComponents, quantiles_of
from mile.likelihoods import AbstractLikelihood, AbstractResponse, Categorical, Gaussian
from mile.likelihoods._links import LOG_SCALE_LIMIT, SCALE_LIMIT, SMALLEST_SCALE

_TINY = float(np.finfo(np.float64).tiny)
_MOMENTS = ("mean", "std", "aleatoric_std", "epistemic_std")
_OF_CLASSES = ("label", "probabilities", "entropy", "mutual_information")


class Result(NamedTuple):
    """An output of the graph."""

    value: Value
    kind: int = FLOAT
    shape: tuple[int, ...] = ()  # of one row


class AbstractHead(ABC):
    """The outputs of a graph."""

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """Names of the outputs."""

    @abstractmethod
    def results(self, outputs: Value, averages: Averages, response: AbstractResponse) -> Mapping[str, Result]:
        """Return the outputs by name, from those of the network in float64, shape (draws, rows, outputs)."""

    @property
    @abstractmethod
    def properties(self) -> dict[str, list[float] | list[str]]:
        """What else a program should know."""


@ByClass
def head_of(likelihood: AbstractLikelihood, response: AbstractResponse, levels: tuple[float, ...]) -> AbstractHead:
    """Return the head of a likelihood.

    Raises
    ------
    ValueError
        If a graph cannot hold it.
    """
    raise ValueError(
        f"an .onnx file cannot hold the likelihood {type(likelihood).__name__}: it can hold Gaussian and Categorical. "
        "A .stablehlo file holds the network of any likelihood."
    )


@dataclass(frozen=True, eq=False)
class NumberHead(AbstractHead):
    """Moments and quantiles on the scale of y."""

    components: Callable[[Value], AbstractComponents]  # of the outputs of the network
    levels: tuple[float, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Moments, then a name for each level, such as q0.05."""
        return (*_MOMENTS, *(f"q{level:g}" for level in self.levels))

    @property
    def properties(self) -> dict[str, list[float] | list[str]]:
        """Levels of the quantiles."""
        return {"quantiles": list(self.levels)}

    def results(self, outputs: Value, averages: Averages, response: AbstractResponse) -> Mapping[str, Result]:
        """Return all outputs, each of shape (rows,)."""
        graph, components = outputs.graph, self.components(outputs)
        center, noise = averages.mean(components.mean), averages.mean(components.variance)
        away = components.mean - center
        ignorance = averages.mean(away * away)
        deviations = [graph.op("Sqrt", variance) for variance in (noise + ignorance, noise, ignorance)]
        shift, unit = float(response.decode(np.zeros(1))[0]), response.unit
        found = [shift + center * unit, *(deviation * unit for deviation in deviations)]
        if self.levels:
            guess = center + deviations[0] * ndtri(np.array(self.levels))[:, None]
            quantiles = shift + quantiles_of(components, averages, np.array(self.levels), guess) * unit
            places = [graph.constant(np.array(place)) for place in range(len(self.levels))]
            found += [graph.op("Gather", quantiles, place, axis=0) for place in places]
        return {name: Result(value.single) for name, value in zip(self.names, found, strict=True)}


@dataclass(frozen=True, eq=False)
class ClassHead(AbstractHead):
    """The most probable class, the probability of each, and two entropies."""

    labels: np.ndarray

    @property
    def names(self) -> tuple[str, ...]:
        """Four names."""
        return _OF_CLASSES

    @property
    def properties(self) -> dict[str, list[float] | list[str]]:
        """The labels, in the order of the probabilities."""
        return {"classes": [str(label) for label in self.labels]}

    def results(self, outputs: Value, averages: Averages, response: AbstractResponse) -> Mapping[str, Result]:
        """Return all outputs; probabilities have shape (rows, classes)."""
        graph = outputs.graph
        of_draws = graph.op("Softmax", outputs, axis=2)
        mean = averages.mean(of_draws, trailing=2)
        mean = mean / graph.op("ReduceSum", mean, graph.integers(1), keepdims=1)
        entropy = _entropy(mean)
        information = graph.op("Max", entropy - averages.mean(_entropy(of_draws)), 0.0)
        code = graph.op("ArgMax", mean, axis=1, keepdims=0)
        labels, kind = _labels(graph, self.labels)
        found = (
            Result(graph.op("Gather", labels, code), kind),
            Result(mean.single, shape=(len(self.labels),)),
            Result(entropy.single),
            Result(information.single),
        )
        return dict(zip(self.names, found, strict=True))


@head_of.of(Gaussian)
def _(likelihood: Gaussian, response: AbstractResponse, levels: tuple[float, ...]) -> AbstractHead:
    floor = SMALLEST_SCALE if likelihood.floor is None else likelihood.floor
    link = _SCALES[likelihood.link]

    def components(outputs: Value) -> AbstractComponents:
        location, raw = (_one_output(outputs, place) for place in range(2))
        return NormalComponents(location, link(raw, floor))

    return NumberHead(components, levels)


@head_of.of(Categorical)
def _(likelihood: Categorical, response: AbstractResponse, levels: tuple[float, ...]) -> AbstractHead:
    labels = response.labels
    return ClassHead(np.arange(likelihood.n_classes) if labels is None else labels)


def _exponential(raw: Value, floor: float) -> Value:
    graph = raw.graph
    return graph.op("Exp", graph.op("Clip", raw, -LOG_SCALE_LIMIT, LOG_SCALE_LIMIT))


def _bounded(raw: Value, floor: float) -> Value:
    """Return standard deviations as `likelihoods/_links.py` has them, without logarithms."""
    graph = raw.graph
    below_limit = 1.0 / (graph.op("Exp", raw * -1.0) + 1.0 / SCALE_LIMIT)
    return graph.op("Sqrt", below_limit * below_limit + floor * floor)


_SCALES = {"exponential": _exponential, "bounded": _bounded}


def _one_output(outputs: Value, place: int) -> Value:
    return outputs.graph.op("Gather", outputs, outputs.graph.constant(np.array(place)), axis=2)


def _entropy(probabilities: Value) -> Value:
    graph = probabilities.graph
    logarithm = graph.op("Log", graph.op("Max", probabilities, _TINY))
    return graph.op("ReduceSum", probabilities * logarithm * -1.0, graph.integers(-1), keepdims=0)


def _labels(graph: Graph, labels: np.ndarray) -> tuple[Value, int]:
    if labels.dtype.kind in "biu":
        return graph.constant(labels.astype(np.int64)), INT64
    if labels.dtype.kind == "f":
        return graph.constant(labels.astype(np.float64)), DOUBLE
    return graph.constant([str(label) for label in labels]), STRING
