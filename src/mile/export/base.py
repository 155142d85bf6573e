"""The contract of an exporter: it writes a fitted model as a file that another program reads.

To add one, write one file in this folder with a frozen dataclass that `mile._registry.exporter` registers under the
suffix of its files. Its fields are the options of `model.export`.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
from jaxtyping import Float

from mile import _registry
from mile.features.base import AbstractFeatureEncoder
from mile.fitting.candidates import flat_draws, weighted_draws
from mile.fitting.result import Fit
from mile.likelihoods import AbstractLikelihood, AbstractResponse
from mile.likelihoods.weights import EQUAL, DrawWeights
from mile.networks.base import Network


@dataclass(frozen=True, kw_only=True, eq=False)
class Exported:
    """What predicts: everything that a file of another program can hold of a fit.

    Attributes
    ----------
    network, likelihood, encoder, response
        As in the fit.
    draws
        The draws that count, of all chains and members.
    weights
        How much each of them counts.
    features
        Names of the columns of an array; None: they have none.
    fitted
        The whole fit.
    """

    network: Network
    likelihood: AbstractLikelihood
    encoder: AbstractFeatureEncoder
    response: AbstractResponse
    draws: Float[np.ndarray, "draw d"]
    weights: DrawWeights
    features: tuple[str, ...] | None
    fitted: Fit

    @classmethod
    def of(cls, fitted: Fit, features: Sequence[str] | None) -> "Exported":
        """Return what predicts in a fit."""
        if fitted.weights is None:
            draws, weights = flat_draws(fitted.chains.draws, fitted.ok), EQUAL
        else:
            draws, weights = weighted_draws(fitted.chains.draws, fitted.members.positions, fitted.weights)
        return cls(
            network=fitted.network,
            likelihood=fitted.likelihood,
            encoder=fitted.encoder,
            response=fitted.response,
            draws=np.asarray(draws[0 : len(draws)], np.float32),
            weights=weights,
            features=None if features is None else tuple(map(str, features)),
            fitted=fitted,
        )


class AbstractExporter(ABC):
    """What all exporters can do; a frozen dataclass whose fields are options with default values."""

    @abstractmethod
    def write(self, model: Exported, path: Path) -> None:
        """Write the file.

        Raises
        ------
        ValueError
            If a file of this kind cannot hold such a model; the message says which part.
        ImportError
            If a package is missing; the message says which extra has it.
        """


def export_fit(
    fitted: Fit, path: str | Path, features: Sequence[str] | None = None, **options: object
) -> AbstractExporter:
    """Write a fit as a file for other programs, by the suffix of its name, and return the exporter that did.

    Parameters
    ----------
    fitted
        The fit.
    path
        Such as "model.onnx".
    features
        Names of the columns of an array.
    options
        Those of the exporter, such as `quantiles` of `Onnx`.

    Raises
    ------
    ValueError
        If there is no exporter of that suffix, it has no such option, or it cannot hold such a model.
    """
    path = Path(path)
    suffix = path.suffix.removeprefix(".").lower()
    if suffix not in _registry.exporter:
        known = ", ".join(f".{name}" for name in _registry.exporter)
        raise ValueError(f"the file to export must end in one of {known}; got {path.name!r}.")
    kind = _registry.exporter[suffix]
    accepted = [field.name for field in fields(kind)]
    unknown = [name for name in options if name not in accepted]
    if unknown:
        has = f"only {', '.join(accepted)}" if accepted else "none"
        raise ValueError(f"a .{suffix} file has no option {unknown[0]!r}; it has {has}.")
    exporter: AbstractExporter = kind(**options)
    exporter.write(Exported.of(fitted, features), path)
    return exporter
