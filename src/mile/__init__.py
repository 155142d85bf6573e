"""MILE: calibrated uncertainty from neural networks by Microcanonical Langevin Ensembles."""

import importlib
import importlib.metadata
from typing import TYPE_CHECKING, Any

# Public names and the modules that define them. Imported on first use: `import mile` loads nothing heavy,
# allocates nothing and touches no device.
_PUBLIC = {
    "Bars": "_progress",
    "Categorical": "likelihoods",
    "Chains": "sampling",
    "Dataset": "data",
    "DeepEnsemble": "samplers",
    "Fit": "results",
    "FitFailedError": "_errors",
    "FitWarning": "_errors",
    "Gaussian": "likelihoods",
    "MLP": "networks",
    "Mile": "samplers",
    "MileClassifier": "estimators",
    "MileRegressor": "estimators",
    "Normal": "priors",
    "Status": "_errors",
    "CorruptFileError": "_errors",
    "Interrupted": "_errors",
    "ResourceError": "_errors",
    "RunLockedError": "_errors",
    "RunMismatchError": "_errors",
    "StorageError": "_errors",
    "UntrustedFileError": "_errors",
    "fit": "fitting",
    "load": "loading",
    "repair": "storage",
    "resume": "loading",
    "sample": "sampling",
}

__all__ = [*_PUBLIC]  # pyright: ignore[reportUnsupportedDunderAll]

if TYPE_CHECKING:
    from mile._errors import (
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
    from mile.estimators import MileClassifier, MileRegressor
    from mile.fitting import fit
    from mile.likelihoods import Categorical, Gaussian
    from mile.loading import load, resume
    from mile.networks import MLP
    from mile.priors import Normal
    from mile.results import Fit
    from mile.samplers import DeepEnsemble, Mile
    from mile.sampling import Chains, sample
    from mile.storage import repair


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return importlib.metadata.version("mile-bnn")
    if name not in _PUBLIC:
        raise AttributeError(f"module 'mile' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"mile.{_PUBLIC[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*globals(), *__all__]
