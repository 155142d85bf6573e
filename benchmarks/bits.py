"""Same seed, same settings, same bits: hashes of predictions, compared with a list that is kept beside this script.

A list holds for one model of processor and one version of JAX. On another one compare two checkouts there:

    PYTHONPATH=../before/src python benchmarks/bits.py --write before.json
    python benchmarks/bits.py --list before.json
"""

import argparse
import hashlib
import json
import platform
import sys
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_diabetes, load_digits, load_iris

from mile import (
    FanIn,
    FitWarning,
    Gaussian,
    Hierarchical,
    Laplace,
    MileClassifier,
    MileRegressor,
    MileTextClassifier,
    PerLayer,
    StudentT,
    native,
)
from mile.networks import Attention, ConvNet, Convolution

LIST = Path(__file__).with_name("bits.json")
SAMPLERS = ("mile", "adjusted", "stochastic", "nuts", "naive_mclmc", "split_hmc", "pgps", "deep_ensemble")
SMALL: dict[str, Any] = {
    "n_chains": 2,
    "warmup_steps": 120,
    "sampling_steps": 60,
    "n_draws": 20,
    "max_epochs": 20,
    "learning_rate": 0.01,
    "random_state": 3,
    "preset": "paper",  # what every version computes alike; the default preset may change
}
DEFAULT: dict[str, Any] = {"preset": "default", "learning_rate": None}
FOLDS: dict[str, Any] = DEFAULT | {"n_chains": 6, "n_folds": 3, "stacking": "slots"}
TEXTS = ["a good film", "good fun", "a bad film", "bad and dull", "it was good", "no fun, bad"] * 8


def numbers(predictive: Any, y: np.ndarray) -> list[np.ndarray]:
    """Return all that a prediction of numbers answers."""
    return [
        *(predictive.mean, predictive.std, predictive.aleatoric_std, predictive.epistemic_std),
        *(predictive.quantile([0.05, 0.5, 0.95]), predictive.cdf(y), predictive.log_prob(y), predictive.crps(y)),
        predictive.sample(3, random_state=1),
    ]


def classes(predictive: Any, y: np.ndarray) -> list[np.ndarray]:
    """Return all that a prediction of classes answers."""
    return [predictive.probs, predictive.entropy, predictive.mutual_information, predictive.log_prob(y)]


def regression(**options: Any) -> list[np.ndarray]:
    x, y = load_diabetes(return_X_y=True)
    usual = {"hidden_layer_sizes": (8, 8)}
    model = MileRegressor(**(SMALL | usual | options)).fit(x[:150], y[:150])
    return numbers(model.predictive(x[150:220]), y[150:220])


def classification(**options: Any) -> list[np.ndarray]:
    x, y = load_iris(return_X_y=True)
    y = np.array(["setosa", "versicolor", "virginica"])[y]
    model = MileClassifier(**(SMALL | {"hidden_layer_sizes": (8,)} | options)).fit(x[::2], y[::2])
    return classes(model.predictive(x[1::2]), y[1::2])


def images() -> list[np.ndarray]:
    x, y = load_digits(return_X_y=True)
    network = ConvNet(convolutions=(Convolution(filters=3, kernel=3, pool=2),), hidden=(8,))
    model = MileClassifier(network=network, **SMALL).fit(x[:120].reshape(-1, 8, 8), y[:120])
    return classes(model.predictive(x[120:180].reshape(-1, 8, 8)), y[120:180])


def texts() -> list[np.ndarray]:
    y = np.array([0, 0, 1, 1, 0, 1] * 8)
    small = Attention(vocabulary=280, context=6, width=8, heads=2, attention_width=8, hidden=(4,))
    model = MileTextClassifier(small, **SMALL).fit(TEXTS, y)
    return classes(model.predictive(TEXTS[:6]), y[:6])


def cases() -> dict[str, Callable[[], list[np.ndarray]]]:
    found: dict[str, Callable[[], list[np.ndarray]]] = {
        "regressor": regression,
        "regressor, the preset's network": lambda: regression(hidden_layer_sizes=None),
        "regressor, GELU": lambda: regression(activation="gelu"),
        "regressor, temperature": lambda: regression(temperature=0.5),
        "regressor, bounded link": lambda: regression(likelihood=Gaussian(link="bounded")),
        "regressor, preset default": lambda: regression(hidden_layer_sizes=None, **DEFAULT),
        "regressor, folds": lambda: regression(**FOLDS),
        "classifier": classification,
        "classifier, preset default": lambda: classification(hidden_layer_sizes=None, **DEFAULT),
        "classifier, folds": lambda: classification(**FOLDS),
        "images": images,
        "text classifier": texts,
    }
    for name in SAMPLERS:
        if name != "pgps":  # with so few steps its particles diverge on this table
            found[f"regressor, sampler {name}"] = lambda name=name: regression(sampler=name)
        found[f"classifier, sampler {name}"] = lambda name=name: classification(sampler=name)
    priors = {
        "laplace": Laplace(),
        "student t": StudentT(),
        "fan-in": FanIn(),
        "per layer": PerLayer(scales=(1, 2, 0.5)),
        "hierarchical": Hierarchical(groups="input"),
    }
    for name, prior in priors.items():
        found[f"regressor, prior {name}"] = lambda prior=prior: regression(prior=prior)
    return found


def digest(arrays: list[np.ndarray]) -> str:
    """Return a hash of types, shapes and bytes."""
    found = hashlib.sha256()
    for array in arrays:
        found.update(f"{array.dtype.str} {array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    return found.hexdigest()[:32]


def kind() -> str:
    """Return what decides the bits besides this library."""
    return " ".join([native.kernel_name(), platform.machine(), *processor(), f"jaxlib-{version('jaxlib')}"])


def processor() -> list[str]:
    """Return maker, family and model as Linux has them: XLA compiles other instructions for each."""
    known = Path("/proc/cpuinfo")
    lines = [line.partition(":") for line in (known.read_text().splitlines() if known.exists() else [])]
    first = {name.strip(): value.strip() for name, _, value in reversed(lines)}
    return [first[name] for name in ("vendor_id", "cpu family", "model") if name in first]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", type=Path, default=LIST, help="hashes to compare with")
    parser.add_argument("--write", type=Path, help="put the hashes into this file instead")
    options = parser.parse_args()
    warnings.simplefilter("ignore", FitWarning)
    found = {}
    for name, case in cases().items():
        found[name] = digest(case())
        print(f"{found[name]}  {name}", flush=True)
    if options.write is not None:
        known = json.loads(options.write.read_text()) if options.write.exists() else {}
        options.write.write_text(json.dumps(known | {kind(): found}, indent=1, sort_keys=True) + "\n")
        return
    expected = json.loads(options.list.read_text()).get(kind())
    if expected is None:
        sys.exit(f"{options.list} has no hashes for {kind()!r}: compare two checkouts on this machine (see the top).")
    differing = [name for name in expected if found.get(name) != expected[name]]
    print(f"{len(expected) - len(differing)} of {len(expected)} the same on {kind()}")
    if differing:
        sys.exit("Differing: " + "; ".join(differing))


if __name__ == "__main__":
    main()
