"""An estimator again from what a file says of it."""

from typing import Any

import numpy as np

from mile import _registry
from mile._errors import UntrustedFileError
from mile.configuration import build, fixed_arrays, is_own
from mile.estimators._classifier import MileClassifier
from mile.estimators._regressor import MileRegressor
from mile.estimators._text import MileTextClassifier, tokenizer_of
from mile.fitting.result import Fit
from mile.networks import FixedArray
from mile.networks.adapters import Adapted

_MOST_FEATURES = 1 << 31


def restore_estimator(origin: Any, fitted: Fit, network: Any = None) -> MileRegressor | MileClassifier:
    """Return the estimator that a file describes, fitted; a network of the user's own is given again.

    Raises
    ------
    UntrustedFileError
        If the description is not of an estimator with possible arguments.
    """
    known = {"estimator", "parameters", "feature_names", "target"}
    if not isinstance(origin, dict) or not known <= set(origin) <= known | {"n_features"}:
        raise UntrustedFileError("the file does not describe an estimator.")
    kinds: dict[Any, Any] = {kind._kind: kind for kind in (MileRegressor, MileClassifier, MileTextClassifier)}
    word, parameters, names = origin["estimator"], origin["parameters"], origin["feature_names"]
    if not isinstance(word, str) or word not in kinds or not isinstance(parameters, dict):
        raise UntrustedFileError(f"{str(word)[:80]!r} is not one of {sorted(kinds)}.")
    kind, of_texts = kinds[word], word == MileTextClassifier._kind
    if kind._task != fitted.likelihood.task:
        raise UntrustedFileError(f"a {word} does not have this likelihood.")
    kind._check_restored(fitted)
    if of_texts:
        tokenizer_of(fitted)  # must be there
    known = set(kind._get_param_names())
    newer = known & {"likelihood", "encoder", "class_weight"}
    if "n_features" not in origin:  # a file of version 0.1, which has none of these, and may have no network
        if newer & set(parameters):
            raise UntrustedFileError(f"unknown argument of a {word}: {sorted(newer & set(parameters))[0]!r}.")
        parameters = dict.fromkeys(newer | ({"network"} & known)) | parameters
    # A folder to write to, or a machine to run on, is not a file's to choose.
    wrong = set(parameters) ^ (known - {"run_dir", "backend", "address", "n_threads"})
    if wrong:
        raise UntrustedFileError(f"unknown or missing argument of a {word}: {sorted(wrong)[0][:80]!r}.")
    if type(parameters["random_state"]) is not int or parameters["random_state"] != fitted.seed:
        raise UntrustedFileError("random_state must be the seed of the fit.")
    plain = (bool, int, float, str, tuple, type(None))
    objects: dict[str, tuple[type | _registry.Registry, ...]] = {
        "sampler": (_registry.sampler, str),
        "prior": (_registry.prior, str),
        "likelihood": (_registry.likelihood, str, type(None)),
        "network": (_registry.network, str, type(None)),
        "embedding": (FixedArray, type(None)),
    }
    fixed = fixed_arrays(fitted.network)
    given = {"network": network} if is_own(parameters["network"]) else {}
    if bool(given) != isinstance(fitted.network, Adapted):
        raise UntrustedFileError(f"the {word} and its fit do not have the same network.")
    arguments = given | {
        name: build(value, *objects.get(name, plain), fixed=fixed)
        for name, value in parameters.items()
        if name not in given
    }
    if isinstance(arguments.get("class_weight"), tuple):
        arguments["class_weight"] = _class_weight(arguments["class_weight"])
    estimator: Any = kind(**arguments)
    try:
        estimator._configuration()
    except (ValueError, OverflowError) as error:
        raise UntrustedFileError(f"the file describes an estimator with an impossible argument: {error}") from error
    n_features = 1 if of_texts else fitted.network.n_inputs
    if "n_features" in origin:  # of X as users pass it; files of version 0.1 have one feature for each input
        n_features = origin["n_features"]
        wanted = fitted.encoder.n_columns(fitted.network.n_inputs)
        if type(n_features) is not int or n_features not in (range(1, _MOST_FEATURES) if wanted is None else [wanted]):
            raise UntrustedFileError("the number of features is not one that this encoder takes.")
    if names is not None:
        are_words = isinstance(names, list) and all(isinstance(name, str) for name in names)
        if not are_words or len(names) != n_features:
            raise UntrustedFileError("there must be one name for each feature.")
    if of_texts:
        estimator.text_name_ = names[0] if names else None
    elif names is not None:
        estimator.feature_names_in_ = np.array(names, object)
    if origin["target"] is not None and not isinstance(origin["target"], str):
        raise UntrustedFileError("the target's name must be a text.")
    estimator.target_name_ = origin["target"]
    estimator.n_features_in_ = n_features
    estimator.fit_ = fitted
    return estimator


def _class_weight(pairs: tuple[Any, ...]) -> dict[Any, float]:
    """Return weights by label from pairs of both, as `_origin` wrote them."""
    try:
        return {label: float(weight) for label, weight in pairs}
    except (TypeError, ValueError) as error:
        raise UntrustedFileError("class_weight must be pairs of a label and its weight.") from error
