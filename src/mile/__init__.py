"""MILE: calibrated uncertainty from neural networks by Microcanonical Langevin Ensembles."""

import importlib
from typing import TYPE_CHECKING, Any

# Public names and the modules that define them. Imported on first use: `import mile` loads nothing heavy,
# allocates nothing and touches no device.
_PUBLIC = {
    "Adjusted": "samplers",
    "Bars": "_progress",
    "Categorical": "likelihoods",
    "Chains": "sampling",
    "Dataset": "data",
    "DeepEnsemble": "samplers",
    "FanIn": "priors",
    "Fit": "results",
    "FitFailedError": "_errors",
    "FitWarning": "_errors",
    "Gaussian": "likelihoods",
    "Laplace": "priors",
    "MLP": "networks",
    "Mile": "samplers",
    "MileClassifier": "estimators",
    "MileRegressor": "estimators",
    "MileTextClassifier": "estimators",
    "NaiveMclmc": "samplers",
    "Normal": "priors",
    "Nuts": "samplers",
    "PerLayer": "priors",
    "Pgps": "samplers",
    "SplitHmc": "samplers",
    "Status": "_errors",
    "Stochastic": "samplers",
    "ClusterError": "_errors",
    "CorruptFileError": "_errors",
    "Interrupted": "_errors",
    "ResourceError": "_errors",
    "RunLockedError": "_errors",
    "RunMismatchError": "_errors",
    "StorageError": "_errors",
    "StudentT": "priors",
    "UntrustedFileError": "_errors",
    "fit": "fitting",
    "forecast_fit": "expectation",
    "load": "loading",
    "map_rows": "mapping",
    "repair": "storage",
    "resume": "loading",
    "sample": "sampling",
}

# Modules of functions that are meant to be used as `mile.metrics.lppd`.
_MODULES = ("convergence", "datasets", "diagnose", "execution", "metrics", "networks", "plot", "pretraining", "text")

__all__ = [*_PUBLIC]  # pyright: ignore[reportUnsupportedDunderAll]

if TYPE_CHECKING:
    from mile._errors import (
        ClusterError,
        CorruptFileError,
        FitFailedError,
        FitWarning,
        Interrupted,
        ResourceError,
        RunLockedError,
        RunMismatchError,
        Status,
        StorageError,
        UntrustedFileError,
    )
    from mile._progress import Bars
    from mile.data import Dataset
    from mile.estimators import MileClassifier, MileRegressor, MileTextClassifier
    from mile.expectation import forecast_fit
    from mile.fitting import fit
    from mile.likelihoods import Categorical, Gaussian
    from mile.loading import load, resume
    from mile.mapping import map_rows
    from mile.networks import MLP
    from mile.priors import FanIn, Laplace, Normal, PerLayer, StudentT
    from mile.results import Fit
    from mile.samplers import Adjusted, DeepEnsemble, Mile, NaiveMclmc, Nuts, Pgps, SplitHmc, Stochastic
    from mile.sampling import Chains, sample
    from mile.storage import repair


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version  # half of the time that this module would take

        return version("mile-bnn")
    if name in _MODULES:
        return importlib.import_module(f"mile.{name}")
    if name not in _PUBLIC:
        raise AttributeError(f"module 'mile' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"mile.{_PUBLIC[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*globals(), *__all__, *_MODULES]
