"""The network that an estimator learns with: what was asked for, or what suits a table."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from mile._checks import check_choice, check_count
from mile.networks import MLP, TEMPLATES, Attention, adapt
from mile.samplers import DEFAULT


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


def default_network(
    shape: tuple[int, ...], n_outputs: int, n_rows: int, hidden: Any, activation: str | None, preset: str
) -> MLP:
    """Return the perceptron that tables get where no network is asked for; None takes the preset's.

    Parameters
    ----------
    shape
        Of one row's features.
    n_outputs
        That the likelihood needs.
    n_rows
        On which the preset's widths depend.
    hidden, activation
        What was asked for.
    preset
        Whose network is taken where nothing was.

    Raises
    ------
    ValueError
        If the rows are not a table's.
    """
    if len(shape) != 1:
        raise ValueError(
            f"X has shape {(n_rows, *shape)}: images need a network that takes them, such as network='lenet5' or "
            f"{sorted(TEMPLATES)}. For a table, X must have shape (rows, features)."
        )
    usual = table_defaults(preset, n_rows)
    return MLP(
        n_inputs=shape[0],
        hidden=usual.hidden if hidden is None else check_widths(hidden),
        n_outputs=n_outputs,
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
