"""What an estimator has to learn, and the network that it learns with."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from mile._checks import check_choice, check_count
from mile.data import Standardizer
from mile.kept import Attachments
from mile.networks import MLP, TEMPLATES, Attention, adapt
from mile.samplers import DEFAULT

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


class TableDefaults(NamedTuple):
    """What a preset stands for where tables are concerned, besides the sampler's own settings."""

    hidden: tuple[int, ...]
    activation: str
    steps: dict[str, int]  # budgets in the place of the sampler's


_PAPER = TableDefaults((16, 16), "relu", {})  # paper table 1
# Chosen on validation rows (experiments/presets): the more rows there are, the more a larger network gains over the
# steps that it costs in the same time. The borders lie somewhere between tables that were looked at.
_BY_ROWS = {
    0: TableDefaults((16, 16), "gelu", {}),
    1_000: TableDefaults((16, 16, 16), "gelu", {"warmup_steps": 20_000, "sampling_steps": 5_000}),
    5_000: TableDefaults((32, 32, 32), "gelu", {"warmup_steps": 6_000, "sampling_steps": 1_500}),
}
# Other presets have steps of their own, of which the largest network would make `quick` no quicker than `default`.
_MOST_ROWS = 1_000


def table_defaults(preset: str, n_rows: int) -> TableDefaults:
    """Return what a preset stands for with so many rows."""
    if preset == "paper":
        return _PAPER
    is_own = preset == DEFAULT
    most = n_rows if is_own else min(n_rows, _MOST_ROWS)
    found = _BY_ROWS[max(border for border in _BY_ROWS if border <= most)]
    return found if is_own else found._replace(steps={})


def default_network(problem: Problem, hidden: Any, activation: str | None, preset: str) -> MLP:
    """Return the perceptron that tables get where no network is asked for; None takes the preset's.

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
    usual = table_defaults(preset, len(problem.x))
    return MLP(
        n_inputs=problem.x.shape[1],
        hidden=usual.hidden if hidden is None else check_widths(hidden),
        n_outputs=problem.likelihood.n_outputs,
        activation=usual.activation if activation is None else activation,
    )


def choose_template(network: Any, hidden: Any, activation: str | None) -> Any:
    """Return the network that was asked for, which takes its size from the data.

    Raises
    ------
    ValueError
        If there is no such network, or arguments of the default network are given besides.
    """
    if hidden is not None or activation not in (None, "relu"):  # which earlier versions wrote into files
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
