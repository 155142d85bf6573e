"""An estimator from what a file says of it."""

from collections.abc import Iterable

import numpy as np

from mile import _registry
from mile._json import Json
from mile._schema import quote, refused, require
from mile.configuration import build, fixed_arrays, is_own
from mile.estimators._classifier import MileClassifier
from mile.estimators._regressor import MileRegressor
from mile.estimators._text import MileTextClassifier, tokenizer_of
from mile.fitting.likelihood_choice import LikelihoodChoice
from mile.fitting.result import Fit
from mile.networks import FixedArray
from mile.networks.adapters import Adapted
from mile.storage import schema

_ESTIMATORS = {kind._kind: kind for kind in (MileRegressor, MileClassifier, MileTextClassifier)}
# A file does not choose a folder or a machine.
_NOT_IN_FILES = {"run_dir", "backend", "address", "n_threads", "warm_start"}
_NEWER = {"likelihood", "encoder", "columns", "class_weight"}  # arguments that version 0.1 did not have
# What earlier versions did, whose files have neither argument.
_BEFORE_FOLDS = {"n_folds": 0, "stacking": "none"}
_LATER = {"stop_when": None}
_PLAIN = (bool, int, float, str, tuple, type(None))
_OBJECTS: dict[str, tuple[type | _registry.Registry, ...]] = {
    "sampler": (_registry.sampler, str),
    "prior": (_registry.prior, str, type(None)),
    "likelihood": (_registry.likelihood, str, type(None)),
    "network": (_registry.network, str, type(None)),
    "embedding": (FixedArray, type(None)),
}


def restore_estimator(
    description: dict[str, Json], fitted: Fit, network: object = None
) -> MileRegressor | MileClassifier:
    """Return the fitted estimator that a file describes; a network of the user's own is given again.

    Raises
    ------
    UntrustedFileError
        If the description is not of an estimator with possible arguments.
    """
    origin = schema.ORIGIN.read(description, place=("extra",))
    word = origin.estimator
    require(word in _ESTIMATORS, f"an estimator must be one of {sorted(_ESTIMATORS)}; got {quote(word)}.")
    kind = _ESTIMATORS[word]
    require(kind._task == fitted.likelihood.task, f"a {word} does not have this likelihood.")
    kind._check_restored(fitted)
    is_text = issubclass(kind, MileTextClassifier)
    if is_text:
        tokenizer_of(fitted)  # must be there
    estimator = kind()
    estimator.set_params(**_arguments(origin, set(kind._get_param_names()), fitted, network))
    with refused("the file describes an estimator with an impossible argument"):
        estimator._configuration()
    names, n_features = origin.feature_names, _n_features(origin, fitted, is_text=is_text)
    require(names is None or len(names) == n_features, "there must be one name for each feature.")
    if isinstance(estimator, MileTextClassifier):
        estimator.text_name_ = names[0] if names else None
    elif names is not None:
        estimator.feature_names_in_ = np.array(names, object)
    estimator.target_name_ = origin.target
    estimator.event_name_, estimator.exposure_name_ = origin.event, origin.exposure
    estimator.likelihood_choice_ = None if origin.choice is None else LikelihoodChoice.read(origin.choice)
    estimator.n_features_in_ = n_features
    estimator.fit_ = fitted
    return estimator


def _arguments(origin: schema.Origin, known: set[str], fitted: Fit, network: object) -> dict[str, object]:
    """Return the arguments of an estimator whose arguments have these names."""
    word, parameters = origin.estimator, origin.parameters
    if origin.n_features is None:  # a file of version 0.1, which has no newer argument and perhaps no network
        newer = known & _NEWER
        wrong = sorted(newer & set(parameters))
        require(not wrong, f"version 0.1 has no argument {wrong} of a {word}.")
        parameters = dict.fromkeys(newer | ({"network"} & known)) | parameters
    if not set(_BEFORE_FOLDS) & set(parameters):
        parameters = {name: value for name, value in _BEFORE_FOLDS.items() if name in known} | parameters
    parameters = {name: value for name, value in _LATER.items() if name in known} | parameters
    wrong = sorted(set(parameters) ^ (known - _NOT_IN_FILES))
    require(not wrong, f"unknown or missing arguments of a {word}: {quote(wrong)}.")
    seed = schema.SEED.read(parameters["random_state"], place=("random_state",))
    require(seed == fitted.seed, "random_state must be the seed of the fit.")
    fixed = fixed_arrays(fitted.network)
    given = {"network": network} if is_own(parameters["network"]) else {}
    is_same = bool(given) == isinstance(fitted.network, Adapted)
    require(is_same, f"the {word} and its fit do not have the same network.")
    arguments = given | {
        name: build(value, *_OBJECTS.get(name, _PLAIN), fixed=fixed)
        for name, value in parameters.items()
        if name not in given
    }
    kinds = arguments.get("columns")
    if kinds is not None:
        arguments["columns"] = _kinds(kinds)
    weights = arguments.get("class_weight")
    if isinstance(weights, tuple):
        arguments["class_weight"] = _class_weight(weights)
    return arguments


def _n_features(origin: schema.Origin, fitted: Fit, *, is_text: bool) -> int:
    """Return the number of columns of X as users pass it; files of version 0.1 have one for each input."""
    n_inputs = fitted.network.n_inputs
    if origin.n_features is None:
        return 1 if is_text else n_inputs
    wanted = fitted.encoder.n_columns(n_inputs)
    require(wanted in (None, origin.n_features), f"this encoder takes {wanted} features; got {origin.n_features}.")
    return origin.n_features


def _class_weight(pairs: Iterable[tuple[str | int, float]]) -> dict[str | int, float]:
    """Return weights by label from pairs of both, as `_origin` wrote them."""
    with refused("class_weight must be pairs of a label and its weight"):
        return {label: float(weight) for label, weight in pairs}


def _kinds(pairs: object) -> dict[str, str]:
    """Return kinds by name from pairs of both, as `_kept_parameters` wrote them."""
    with refused("columns must be pairs of a name and a kind"):
        return {str(name): str(kind) for name, kind in pairs}  # pyright: ignore[reportGeneralTypeIssues]: refused if not
