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
    "Fit": "fitting",
    "FitFailedError": "_errors",
    "FitWarning": "_errors",
    "Gaussian": "likelihoods",
    "MLP": "networks",
    "Mile": "samplers",
    "MileClassifier": "estimators",
    "MileRegressor": "estimators",
    "Normal": "priors",
    "Status": "_errors",
    "fit": "fitting",
    "sample": "sampling",
}

__all__ = [*_PUBLIC]  # pyright: ignore[reportUnsupportedDunderAll]

if TYPE_CHECKING:
    from mile._errors import FitFailedError, FitWarning, Status
    from mile._progress import Bars
    from mile.data import Dataset
    from mile.estimators import MileClassifier, MileRegressor
    from mile.fitting import Fit, fit
    from mile.likelihoods import Categorical, Gaussian
    from mile.networks import MLP
    from mile.priors import Normal
    from mile.samplers import DeepEnsemble, Mile
    from mile.sampling import Chains, sample


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
