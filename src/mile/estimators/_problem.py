"""What an estimator has to learn, and the network that it learns with."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from mile._checks import check_choice, check_count
from mile.data import Standardizer
from mile.kept import Attachments
from mile.networks import MLP, TEMPLATES, Attention, adapt

_PRESET_HIDDEN = (16, 16)  # paper table 1
Learner = Callable[[np.ndarray, np.ndarray], Standardizer]  # of all rows, and the numbers of those to learn from


class Problem(NamedTuple):
    """What there is to learn."""

    x: np.ndarray  # rows first; a table or images
    y: np.ndarray  # numbers or class codes
    likelihood: Any
    learn: Learner  # of the scale of x
    classes: np.ndarray | None = None
    attachments: Attachments | None = None
    network: Any = None  # if it is settled already


def default_network(problem: Problem, hidden: Any, activation: str) -> MLP:
    """Return the perceptron that tables get where no network is asked for.

    Raises
    ------
    ValueError
        If the rows are not a table's.
    """
    if problem.x.ndim > 2:
        raise ValueError(
            f"X has shape {problem.x.shape}: images need a network that takes them, such as network='lenet5' or "
            f"{sorted(TEMPLATES)}. For a table, X must have shape (rows, features)."
        )
    return MLP(
        n_inputs=problem.x.shape[1],
        hidden=_PRESET_HIDDEN if hidden is None else check_widths(hidden),
        n_outputs=problem.likelihood.n_outputs,
        activation=activation,
    )


def choose_template(network: Any, hidden: Any, activation: str) -> Any:
    """Return the network that was asked for, which takes its size from the data.

    Raises
    ------
    ValueError
        If there is no such network, or arguments of the default network are given besides.
    """
    if hidden is not None or activation != "relu":
        raise ValueError(
            "hidden_layer_sizes and activation describe the default network: leave them out with network=, and set "
            "widths and activation there."
        )
    if isinstance(network, str):
        return TEMPLATES[check_choice("network", network, TEMPLATES)]
    if isinstance(network, Attention):
        raise ValueError("an Attention network reads texts: use MileTextClassifier.")
    if not isinstance(network, type) and hasattr(network, "sized"):
        return network
    try:
        return adapt(network)
    except TypeError as error:
        raise ValueError(f"network must be None, one of {sorted(TEMPLATES)} or a network; {error}") from None


def check_widths(widths: Any) -> tuple[int, ...]:
    """Return the widths of hidden layers as a tuple of counts."""
    if isinstance(widths, str) or not isinstance(widths, Iterable):
        raise ValueError(f"hidden_layer_sizes must be a sequence of widths, such as (16, 16); got {widths!r}.")
    return tuple(check_count("each entry of hidden_layer_sizes", width) for width in widths)
