"""What a preset means for tables: this page is the one place that says so.

A sampler's own settings (schedules, budgets) belong to `mile.samplers`; everything else that a preset chooses for
tables is in the records below, by task and by number of rows. Other networks, images and texts keep the paper's.
"""

from typing import NamedTuple

from mile.data.folds import FEWEST_FOLDS
from mile.ensemble.rate_schedules import CosLog
from mile.ensemble.training import Patience, Training
from mile.likelihoods import AbstractLikelihood, Gaussian
from mile.likelihoods.base import Task
from mile.samplers import DEFAULT


class TableDefaults(NamedTuple):
    """What a preset means for tables, besides the sampler's own settings."""

    hidden: tuple[int, ...]
    activation: str
    steps: dict[str, int]  # budgets that replace the sampler's
    prior: str
    likelihood: str | AbstractLikelihood  # a name, or an object with its settings
    n_folds: int  # that rotate; 0: rows are set aside for validation
    stacking: str  # how chains and members are weighed, one of `mile.fitting.weighing.STACKING`; only with folds
    training: Training  # of the members that the chains start from
    pieces: int  # of each number, for tables that are encoded; 0: a number is one feature
    hidden_of_pieces: tuple[int, ...] | None = None  # where there are pieces, instead of `hidden`

    def of_encoded(self, is_encoded: bool) -> "TableDefaults":
        """Return what it means for rows that are, or are not, encoded from columns of any kind."""
        hidden = self.hidden_of_pieces if is_encoded and self.hidden_of_pieces else self.hidden
        return self._replace(hidden=hidden, hidden_of_pieces=None)


def _trained(batch_size: int, epochs: int) -> Training:
    """Return the training that won on inner splits (experiments/suite, "The start"); it spends all its epochs."""
    return Training(
        learning_rate=0.02,
        batch_size=batch_size,
        max_epochs=epochs,
        stopping=Patience(epochs=epochs),
        second_decay=0.95,
        schedule=CosLog(),
    )


_PAPER: dict[Task, TableDefaults] = {  # paper table 1
    "regression": TableDefaults((16, 16), "relu", {}, "normal", "gaussian", 0, "none", Training(), 0),
    "classification": TableDefaults((16, 16), "relu", {}, "normal", "categorical", 0, "none", Training(), 0),
}
_MEDIUM_STEPS = {"warmup_steps": 20_000, "sampling_steps": 5_000}
_LARGE_STEPS = {"warmup_steps": 6_000, "sampling_steps": 1_500}
# By the smallest number of rows. Networks and steps were chosen on validation rows (experiments/presets): the more rows
# there are, the more a larger network gains over the steps that it costs in the same time. The borders lie between the
# sizes of the tables that were tried. Prior, link, folds and weights: experiments/suite. With twelve folds each chain
# lacks few rows, which small tables feel; with six each row has two chains that left it out, so that their scores say
# more of what twelve can do.
_REGRESSION = {
    0: TableDefaults(
        hidden=(16, 16),
        activation="gelu",
        steps={},
        prior="hierarchical",
        likelihood=Gaussian(link="bounded"),
        n_folds=12,
        stacking="slots",
        training=_trained(batch_size=32, epochs=200),
        pieces=0,
    )
}
_REGRESSION[200] = _REGRESSION[0]._replace(n_folds=6)
_REGRESSION[1_000] = _REGRESSION[200]._replace(
    hidden=(16, 16, 16), steps=_MEDIUM_STEPS, training=_trained(batch_size=64, epochs=100)
)
_REGRESSION[5_000] = _REGRESSION[200]._replace(
    hidden=(32, 32, 32), steps=_LARGE_STEPS, training=_trained(batch_size=256, epochs=60)
)
# How finely encoded tables cut numbers, and how wide the network then has to be: experiments/mixed_tables.
_REGRESSION[5_000] = _REGRESSION[5_000]._replace(pieces=16)
_CLASSIFICATION = {rows: found._replace(likelihood="categorical") for rows, found in _REGRESSION.items()}
_CLASSIFICATION[5_000] = _CLASSIFICATION[5_000]._replace(pieces=32, hidden_of_pieces=(16, 16, 16))
_BY_ROWS: dict[Task, dict[int, TableDefaults]] = {"regression": _REGRESSION, "classification": _CLASSIFICATION}
# Other presets keep their own steps; with the largest network `quick` would be no quicker than `default`.
_MOST_ROWS = 1_000
_OF_THE_PAPER = ("paper", "published")  # the second is how the code of a paper differs from its text
_WEIGHED = ("mile", "auto")  # the samplers whose chains the preset may weigh; those of others all count the same


def table_defaults(preset: str, n_rows: int, task: Task = "regression", sampler: object = "mile") -> TableDefaults:
    """Return what a preset means for a table of so many rows."""
    if preset in _OF_THE_PAPER:
        return _PAPER[task]
    is_own, by_rows = preset == DEFAULT, _BY_ROWS[task]
    most = n_rows if is_own else min(n_rows, _MOST_ROWS)
    found = by_rows[max(border for border in by_rows if border <= most)]
    found = found if is_own else found._replace(steps={})
    return found if sampler in _WEIGHED and preset != "exact" else found._replace(stacking="none")


def usual_folds(wanted: int, n_chains: int) -> int:
    """Return how many of the folds that a preset wants so many chains can leave out; 0 if they are too few."""
    possible = min(wanted, n_chains)
    return possible if possible >= FEWEST_FOLDS else 0
