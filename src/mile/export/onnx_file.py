"""ONNX: a graph with encoder, all draws, moments and quantiles, which onnxruntime computes without this package."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mile import _registry
from mile._checks import check_flag
from mile.export.base import AbstractExporter, Exported
from mile.storage import write_binary

QUANTILES = (0.05, 0.95)  # ends of the 90 % interval


@_registry.exporter("onnx")
@dataclass(frozen=True, kw_only=True)
class Onnx(AbstractExporter):
    """A graph for onnxruntime: rows as users have them in, moments and quantiles or probabilities out.

    Parameters
    ----------
    quantiles
        Levels of the quantiles that the graph computes, an output each; classes have none.
    half
        Keep the draws as float16: half the size, and predictions that differ by about a thousandth.
    """

    quantiles: Sequence[float] = QUANTILES
    half: bool = False

    def __post_init__(self) -> None:
        levels = tuple(map(float, self.quantiles))
        if len(set(levels)) < len(levels) or not all(0.0 < level < 1.0 for level in levels):
            raise ValueError(f"quantiles must be different levels strictly between 0 and 1; got {self.quantiles!r}.")
        object.__setattr__(self, "quantiles", levels)
        check_flag("half", self.half)

    def write(self, model: Exported, path: Path) -> None:
        """Write the graph."""
        write_binary(path, self.serialized(model))

    def serialized(self, model: Exported) -> bytes:
        """Return the bytes of the file."""
        try:
            from mile.export._encoders import ROWS, encode
            from mile.export._graph import Graph
            from mile.export._heads import head_of
            from mile.export._mixtures import Averages
            from mile.export._networks import outputs_of
        except ModuleNotFoundError as error:
            if error.name != "onnx":
                raise
            raise ImportError("an .onnx file needs the onnx package: pip install 'mile-bnn[onnx]'.") from error
        head = head_of(model.likelihood, model.response, tuple(self.quantiles))
        graph = Graph(reserved={*head.names})
        features = encode(model.encoder, graph)
        outputs = outputs_of(model.network, features, model.draws, half=self.half)
        for name, result in head.results(outputs, Averages(model.weights), model.response).items():
            graph.output(result.value, result.kind, [ROWS, *result.shape], name)
        properties = {"draws": len(model.draws), "half": self.half, **head.properties}
        if model.features is not None:
            properties["features"] = list(model.features)
        texts = {name: json.dumps(value) for name, value in properties.items()}
        return graph.model("mile", _DESCRIPTION, texts).SerializeToString()


_DESCRIPTION = "The predictive distribution of a Bayesian neural network: a mixture over draws of its weights."
