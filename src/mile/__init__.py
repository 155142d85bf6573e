"""MILE: calibrated uncertainty from neural networks by Microcanonical Langevin Ensembles."""

import importlib
from typing import TYPE_CHECKING, Any

# Public names besides the registered classes, and the modules that define them. All are imported on first use:
# `import mile` loads nothing heavy, allocates nothing and touches no device.
_PUBLIC = {
    "Bars": "_progress",
    "Chains": "sampling",
    "Dataset": "data",
    "Fit": "fitting",
    "FitFailedError": "_errors",
    "FitWarning": "_errors",
    "MileClassifier": "estimators",
    "MileRegressor": "estimators",
    "MileTextClassifier": "estimators",
    "Status": "_errors",
    "ClusterError": "_errors",
    "CorruptFileError": "_errors",
    "Interrupted": "_errors",
    "ResourceError": "_errors",
    "RunLockedError": "_errors",
    "RunMismatchError": "_errors",
    "StorageError": "_errors",
    "UntrustedFileError": "_errors",
    "censored": "likelihoods.limits",
    "compare": "estimators.comparing",
    "fit": "fitting",
    "forecast_fit": "fitting.forecast",
    "load": "serving.loading",
    "map_rows": "predict.on_dask",
    "repair": "storage",
    "resume": "estimators.loading",
    "sample": "sampling",
    "with_exposure": "features.exposure",
}

# Modules of functions that are meant to be used as `mile.metrics.lppd`, and where they are.
_MODULES = {
    "convergence": "diagnose.convergence",
    "datasets": "datasets",
    "diagnose": "diagnose",
    "execution": "execution",
    "explain": "explain",
    "metrics": "metrics",
    "networks": "networks",
    "plot": "plot",
    "pretraining": "ensemble.embeddings",
    "text": "features.tokens",
}

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
    from mile.estimators.comparing import compare
    from mile.estimators.loading import resume
    from mile.execution import DaskBackend, Devices, InProcess
    from mile.export.netcdf import NetCdf
    from mile.export.onnx_file import Onnx
    from mile.export.stablehlo import StableHlo
    from mile.features.exposure import WithExposure, with_exposure
    from mile.features.numbers import Standardizer
    from mile.features.piecewise import Piecewise
    from mile.features.pixels import PixelScale
    from mile.features.table import TableEncoder
    from mile.features.tokens import TextEncoder
    from mile.fitting import Fit, fit
    from mile.fitting.forecast import forecast_fit
    from mile.likelihoods import Categorical, Gamma, Gaussian, LogNormal, Weibull
    from mile.likelihoods.beta import Beta
    from mile.likelihoods.censored import Censored
    from mile.likelihoods.histogram import Histogram
    from mile.likelihoods.hurdle import HurdleGamma, HurdleLogNormal
    from mile.likelihoods.independent import Independent
    from mile.likelihoods.laplace import LaplaceNoise
    from mile.likelihoods.limits import censored
    from mile.likelihoods.log_logistic import LogLogistic
    from mile.likelihoods.mixture import NormalMixture
    from mile.likelihoods.multivariate_gaussian import MultivariateGaussian
    from mile.likelihoods.negative_binomial import NegativeBinomial, ZeroInflatedNegativeBinomial
    from mile.likelihoods.ordered_classes import OrderedClasses
    from mile.likelihoods.ordinal import Ordinal
    from mile.likelihoods.poisson import Poisson, ZeroInflatedPoisson
    from mile.likelihoods.skew import TwoPieceNormal
    from mile.likelihoods.student_t import StudentTNoise
    from mile.networks import MLP, Attention, ConvNet
    from mile.networks.offset import Offset
    from mile.predict.on_dask import map_rows
    from mile.priors import FanIn, Hierarchical, Laplace, Normal, PerLayer, StudentT
    from mile.samplers import Adjusted, Auto, DeepEnsemble, Mile, NaiveMclmc, Nuts, Pgps, SplitHmc, Stochastic
    from mile.sampling import Chains, sample
    from mile.serving.loading import load
    from mile.storage import repair


def __getattr__(name: str) -> Any:  # a class, a function, a module or a list: type checkers read the block above
    if name == "__version__":
        from importlib.metadata import version  # half of the time that this module would take

        return version("mile-bnn")
    if name in _MODULES:
        return importlib.import_module(f"mile.{_MODULES[name]}")
    if name == "__all__":
        return sorted({*_PUBLIC, *_registered()})
    module = f"mile.{_PUBLIC[name]}" if name in _PUBLIC else None
    if module is None and not name.startswith("_"):
        module = _registered().get(name)
    if module is None:
        raise AttributeError(f"module 'mile' has no attribute {name!r}")
    value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC, *_MODULES, *_registered()})


def _registered() -> dict[str, str]:
    """Return the names of the classes that this package registers, with their modules."""
    from mile._registry import REGISTRIES

    return {found.class_name: found.module for registry in REGISTRIES for found in registry.declared.values()}
