"""The network of an estimator: the one that was asked for, or the default for tables."""

from collections.abc import Iterable, Sequence
from typing import cast

from mile._checks import check_choice, check_count
from mile.estimators._presets import TableDefaults
from mile.networks import MLP, TEMPLATES, Attention, adapt
from mile.networks.base import Template


def default_network(
    shape: tuple[int, ...],
    n_outputs: int,
    n_rows: int,
    hidden: Sequence[int] | None,
    activation: str | None,
    usual: TableDefaults,
) -> MLP:
    """Return the default network of tables, a perceptron.

    Parameters
    ----------
    shape
        Shape of one row's features.
    n_outputs
        Outputs that the likelihood needs.
    n_rows
        Number of rows.
    hidden, activation
        Widths of the hidden layers and their activation; None takes the preset's.
    usual
        What the preset means for so many rows.

    Raises
    ------
    ValueError
        If the rows are not those of a table.
    """
    if len(shape) != 1:
        raise ValueError(
            f"X has shape {(n_rows, *shape)}: images need a network that takes them, such as network='lenet5' or "
            f"{sorted(TEMPLATES)}. For a table, X must have shape (rows, features)."
        )
    return MLP(
        n_inputs=shape[0],
        hidden=usual.hidden if hidden is None else check_widths(hidden),
        n_outputs=n_outputs,
        activation=usual.activation if activation is None else activation,
    )


def choose_template(network: object, hidden: Sequence[int] | None, activation: str | None) -> Template:
    """Return the network that was asked for; the data decide its size.

    Raises
    ------
    ValueError
        If there is no such network, or arguments of the default network are given too.
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
    if hasattr(type(network), "sized"):
        return cast(Template, network)
    try:
        return adapt(network)
    except TypeError as error:
        raise ValueError(f"network must be None, one of {sorted(TEMPLATES)} or a network; {error}") from None


def kept_network(network: object, template: Template) -> str | Template:
    """Return what a file keeps of a network: its name, or the template, which holds none of the user's code."""
    return network if isinstance(network, str) else template


def check_widths(widths: object) -> tuple[int, ...]:
    """Return the widths of hidden layers as a tuple of counts."""
    try:
        entries = None if isinstance(widths, str) else tuple(cast(Iterable[object], widths))
    except TypeError:  # it has no entries
        entries = None
    if entries is None:
        raise ValueError(f"hidden_layer_sizes must be a sequence of widths, such as (16, 16); got {widths!r}.")
    return tuple(check_count("each entry of hidden_layer_sizes", width) for width in entries)
