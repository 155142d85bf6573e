"""An estimator again from what a file says of it."""

from typing import Any

import numpy as np

from mile._errors import UntrustedFileError
from mile.configuration import build, fixed_arrays, is_own
from mile.estimators._classifier import MileClassifier
from mile.estimators._regressor import MileRegressor
from mile.estimators._text import MileTextClassifier, tokenizer_of
from mile.likelihoods import Categorical
from mile.networks import NETWORKS, FixedArray
from mile.networks.adapters import Adapted
from mile.priors import BUILT_IN
from mile.results import Fit
from mile.samplers import KINDS


def restore_estimator(origin: Any, fitted: Fit, network: Any = None) -> MileRegressor | MileClassifier:
    """Return the estimator that a file describes, fitted; a network of the user's own is given again.

    Raises
    ------
    UntrustedFileError
        If the description is not of an estimator with possible arguments.
    """
    if not isinstance(origin, dict) or set(origin) != {"estimator", "parameters", "feature_names", "target"}:
        raise UntrustedFileError("the file does not describe an estimator.")
    kinds: dict[Any, Any] = {kind._kind: kind for kind in (MileRegressor, MileClassifier, MileTextClassifier)}
    word, parameters, names = origin["estimator"], origin["parameters"], origin["feature_names"]
    if not isinstance(word, str) or word not in kinds or not isinstance(parameters, dict):
        raise UntrustedFileError(f"{str(word)[:80]!r} is not one of {sorted(kinds)}.")
    kind, of_texts = kinds[word], word == MileTextClassifier._kind
    if issubclass(kind, MileClassifier) != isinstance(fitted.likelihood, Categorical):
        raise UntrustedFileError(f"a {word} does not have this likelihood.")
    if issubclass(kind, MileClassifier) and fitted.classes is None:
        raise UntrustedFileError("a classifier must have labels.")
    if of_texts:
        tokenizer_of(fitted)  # must be there
    parameters = {"network": None} | parameters  # files of version 0.1 do not name it
    # A folder to write to, or a machine to run on, is not a file's to choose.
    wrong = set(parameters) ^ (set(kind._get_param_names()) - {"run_dir", "backend", "address", "n_threads"})
    if wrong:
        raise UntrustedFileError(f"unknown or missing argument of a {word}: {sorted(wrong)[0][:80]!r}.")
    if type(parameters["random_state"]) is not int or parameters["random_state"] != fitted.seed:
        raise UntrustedFileError("random_state must be the seed of the fit.")
    plain = (bool, int, float, str, tuple, type(None))
    objects = {"sampler": (*KINDS.values(), str), "prior": (*BUILT_IN, str), "network": (*NETWORKS, str, type(None))}
    objects |= {"embedding": (FixedArray, type(None))}
    fixed = fixed_arrays(fitted.network)
    given = {"network": network} if is_own(parameters["network"]) else {}
    if bool(given) != isinstance(fitted.network, Adapted):
        raise UntrustedFileError(f"the {word} and its fit do not have the same network.")
    arguments = given | {
        name: build(value, *objects.get(name, plain), fixed=fixed)
        for name, value in parameters.items()
        if name not in given
    }
    estimator: Any = kind(**arguments)
    try:
        estimator._configuration()
    except (ValueError, OverflowError) as error:
        raise UntrustedFileError(f"the file describes an estimator with an impossible argument: {error}") from error
    n_features = 1 if of_texts else fitted.network.n_inputs
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
