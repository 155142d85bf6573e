"""`likelihood="auto"`: which family predicts rows best that short trained members have left out.

For each family of `mile.likelihoods.recognition` a few networks are trained as the members of the ensemble are, each
without one fold. The usual family is replaced by another one only if that one gains more on the rows left out than
chance explains.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple, cast

import numpy as np
from jaxtyping import Float, Int

from mile import _registry
from mile._compilation import use_compilation_cache
from mile._errors import Status
from mile._json import Json
from mile._schema import Count, Fields, Nullable, Number, Several, Text
from mile.data import Dataset
from mile.ensemble.members import train_members
from mile.ensemble.training import Training
from mile.execution import InProcess
from mile.fitting.job import plan
from mile.fitting.rotation import Rotation
from mile.likelihoods import AbstractLikelihood, Predictive
from mile.likelihoods.recognition import Cells, Recognized
from mile.networks.base import Network
from mile.predict import predict
from mile.samplers import DeepEnsemble

AUTO = "auto"
_MOST_ROWS = 10_000  # an even selection of more; a hundredth of a nat is then about one standard error
_MEMBERS_OF_A_FOLD = 2
_LEAST_GAIN = 0.02  # LPPD per row
_ERRORS = 2.0  # standard errors of the gain
_MOST_OF_A_ROW = 5.0  # gain or loss of a single row, so that a few rows far out do not decide

Scores = Float[np.ndarray, " row"]


class Compared(NamedTuple):
    """A family in the comparison; None where it could not be trained, or the time was over."""

    likelihood: str
    n_outputs: int
    lppd: float | None = None
    gain: float | None = None  # over the usual family, row by row
    standard_error: float | None = None

    @property
    def is_better(self) -> bool:
        """Whether it gains more than chance explains."""
        if self.gain is None or self.standard_error is None:
            return False
        return self.gain > max(_LEAST_GAIN, _ERRORS * self.standard_error)

    def __str__(self) -> str:
        return f"{self.likelihood} {'not compared' if self.lppd is None else f'{self.lppd:.3f}'}"


@dataclass(frozen=True, kw_only=True, repr=False)
class LikelihoodChoice:
    """What `likelihood="auto"` chose and why; the repr is one line.

    Attributes
    ----------
    chosen
        Name of the family.
    kind
        What y was recognized as.
    compared
        The usual family first, then the others.
    """

    chosen: str
    kind: str
    compared: tuple[Compared, ...] = ()

    @property
    def sentence(self) -> str:
        """One line that says what was chosen and why."""
        start = f'likelihood="auto" chose {self.chosen}: y is {self.kind}'
        scored = [one for one in self.compared if one.gain is not None]
        if not scored:
            return f"{start}."
        usual, others = scored[0], [one for one in scored[1:] if one.gain is not None]
        if not others:
            return f"{start}, and no other family could be compared."
        best = max(others, key=lambda one: one.gain or 0.0)
        if self.chosen == usual.likelihood:
            return f"{start}, and no other family predicts left-out rows clearly better ({_gain(best)} at best)."
        found = next(one for one in others if one.likelihood == self.chosen)
        tie = "" if found is best else f", simpler than {best.likelihood} and as good"
        return f"{start}, and short runs predict left-out rows better than by {usual.likelihood} ({_gain(found)}){tie}."

    @property
    def table(self) -> str:
        """One line with the log scores of all families."""
        found = ", ".join(map(str, self.compared))
        return f"Out-of-fold log scores of short runs: {found}." if self.compared else ""

    @property
    def lines(self) -> list[str]:
        """Both, for a page."""
        return [line for line in (self.sentence, self.table) if line]

    def __repr__(self) -> str:
        return self.sentence

    def described(self) -> dict[str, Json]:
        """Return this as a file keeps it."""
        return {"chosen": self.chosen, "kind": self.kind, "compared": [one._asdict() for one in self.compared]}

    @classmethod
    def read(cls, described: Json) -> "LikelihoodChoice":
        """Return what a file has kept.

        Raises
        ------
        UntrustedFileError
            If anything is missing or impossible.
        """
        return _CHOICE.read(described, place=("choice",))


_COMPARED = Fields(
    Compared,
    {
        "likelihood": Text(longest=100),
        "n_outputs": Count(1),
        **dict.fromkeys(("lppd", "gain", "standard_error"), Nullable(Number())),
    },
)
_CHOICE = Fields(
    LikelihoodChoice,
    {"chosen": Text(longest=100), "kind": Text(longest=1_000), "compared": Several(_COMPARED, most=100)},
)


class Chosen(NamedTuple):
    """The likelihood to fit, and why."""

    likelihood: AbstractLikelihood
    choice: LikelihoodChoice


def choose_by_left_out_rows(
    dataset: Dataset,
    y: Float[np.ndarray, " row"],
    found: Recognized,
    usual: AbstractLikelihood,
    network_for: Callable[[AbstractLikelihood], Network],
    training: Training,
    *,
    seed: int,
    seconds: float | None = None,
    groups: Int[np.ndarray, " row"] | None = None,
    n_threads: int | None = None,
) -> Chosen:
    """Compare the families that may suit a response.

    The comparison runs in this process, also where chains run elsewhere. Without a limit of time the same arguments
    give the same choice.

    Parameters
    ----------
    dataset
        Encoded rows of features with folds that rotate.
    y
        The response of its training rows, which `usual` has checked.
    found
        What `recognize` says of y.
    usual
        The family that is kept unless another one is clearly better.
    network_for
        Returns the network with the outputs that a likelihood needs.
    training
        Of the members.
    seed
        Of the fit.
    seconds
        That the comparison may take; the families that come last are left out.
    groups
        Rows of one group are not independent of each other.
    n_threads
        Cores to use; None: all.
    """
    began = time.perf_counter()
    runs = _ShortRuns(_some_rows(dataset), found, training, seed, InProcess(n_threads=n_threads))
    rows = _chosen_rows(len(y))
    families = [usual, *(_registry.likelihood[name].for_response(y) for name in found.families)]
    use_compilation_cache()
    scores: list[Scores | None] = []
    for number, family in enumerate(families):
        # The next one will take about as long as the mean of those before.
        expected = (time.perf_counter() - began) * (1.0 + 1.0 / number) if number else 0.0
        in_time = seconds is None or expected <= seconds
        scores.append(runs.scores(family, network_for(family), y[rows]) if in_time else None)
    weight = runs.dataset.train.weight
    place, compared = _decide(families, scores, weight, None if groups is None else groups[rows])
    return Chosen(families[place], LikelihoodChoice(chosen=_name(families[place]), kind=found.kind, compared=compared))


@dataclass(frozen=True, eq=False)
class _ShortRuns:
    """Members that are trained without a fold each, and how well they predict it."""

    dataset: Dataset
    recognized: Recognized
    training: Training
    seed: int
    backend: InProcess

    def scores(self, family: AbstractLikelihood, network: Network, y: np.ndarray) -> Scores | None:
        """Return the log score of each row by the members that left it out; None if there are none for some rows."""
        assert self.dataset.folds is not None
        response = family.learn(y, np.arange(len(y)), self.dataset.train.weight)
        train = replace(self.dataset.train, y=response.encode(y))
        dataset = replace(self.dataset, train=train, response=response)
        n_folds = Rotation.of(self.dataset.folds).n_folds
        n_members = _MEMBERS_OF_A_FOLD * n_folds
        job = plan(dataset, network, family, None, DeepEnsemble(), self.training, n_members, self.seed)
        learning, validation, _ = job.own_rows(job.posterior(), np.arange(n_members))
        members = train_members(
            learning, validation, self.training, range(n_members), seed=self.seed, backend=self.backend
        )
        good = np.array([code == Status.OK for code in members.status])
        found, cells = np.empty(len(y)), self.recognized.cells
        for fold in range(n_folds):
            unseen, left_out = np.flatnonzero(dataset.folds == fold), np.arange(n_members) % n_folds == fold
            if not (good & left_out).any():
                return None
            draws = members.positions[good & left_out]
            found[unseen] = _log_scores(job.network, job.likelihood, draws, dataset, unseen, y[unseen], cells)
        return found if np.isfinite(found).all() else None


def _log_scores(
    network: Network,
    likelihood: AbstractLikelihood,
    draws: np.ndarray,
    dataset: Dataset,
    rows: np.ndarray,
    y: np.ndarray,
    cells: Cells,
) -> Scores:
    response = dataset.response or likelihood.plain_response()
    # Only families of numbers are compared.
    predictive = cast(Predictive, predict(network, likelihood, draws, dataset.train.x[rows], response))
    with np.errstate(divide="ignore"):
        return np.asarray(cells.log_scores(predictive, y))


def _decide(
    families: list[AbstractLikelihood], scores: list[Scores | None], weight: Scores, groups: np.ndarray | None
) -> tuple[int, tuple[Compared, ...]]:
    """Return the place of the family to take, and the table.

    Of those that are clearly better than the usual one it is the best, or a simpler one within a standard error of it.
    """
    names = [Compared(_name(family), family.n_outputs) for family in families[: len(scores)]]
    if not scores or scores[0] is None:
        return 0, tuple(names)
    table = []
    for one, found in zip(names, scores, strict=True):
        if found is not None:
            gain, error = paired_gain(found, scores[0], weight, groups)
            one = one._replace(lppd=float(np.average(found, weights=weight)), gain=gain, standard_error=error)
        table.append(one)
    better = [place for place, one in enumerate(table) if one.is_better]
    if not better:
        return 0, tuple(table)
    best = max(better, key=lambda place: table[place].gain or 0.0)
    level = [place for place in better if place == best or _is_level(scores[place], scores[best], weight, groups)]
    return min(level, key=lambda place: (table[place].n_outputs, place)), tuple(table)


def _is_level(scores: Scores | None, best: Scores | None, weight: Scores, groups: np.ndarray | None) -> bool:
    """Say whether scores lie within a standard error of the best ones."""
    if scores is None or best is None:
        return False
    loss, error = paired_gain(best, scores, weight, groups)
    return loss <= error


def paired_gain(
    scores: Scores, usual: Scores, weight: Scores | None = None, groups: np.ndarray | None = None
) -> tuple[float, float]:
    """Return the mean gain per row and its standard error; each row gains or loses at most five nats.

    Rows of one group count as one observation of their sum.
    """
    gain = np.clip(np.nan_to_num(scores - usual), -_MOST_OF_A_ROW, _MOST_OF_A_ROW)
    share = np.full(len(gain), 1.0 / len(gain)) if weight is None else np.asarray(weight, np.float64) / np.sum(weight)
    mean = float(share @ gain)
    parts = share * (gain - mean)
    if groups is not None:
        parts = np.bincount(np.unique(groups, return_inverse=True)[1], weights=parts)
    n = len(parts)
    return mean, float(np.sqrt(np.sum(np.square(parts)) * n / max(n - 1, 1)))


def _some_rows(dataset: Dataset) -> Dataset:
    """Return the data set with an even selection of very many rows."""
    assert dataset.folds is not None
    chosen, rows = _chosen_rows(len(dataset.train)), dataset.train
    some = {name: getattr(rows, name)[chosen] for name in ("x", "y", "weight", "number")}
    return replace(dataset, train=replace(rows, **some), folds=dataset.folds[chosen])


def _chosen_rows(n_rows: int) -> Int[np.ndarray, " chosen"]:
    return np.linspace(0, n_rows - 1, min(n_rows, _MOST_ROWS)).round().astype(int)


def _name(family: AbstractLikelihood) -> str:
    return _registry.likelihood.name_of(type(family)) or type(family).__name__


def _gain(one: Compared) -> str:
    return f"{one.likelihood} gains {one.gain:+.3f} ± {one.standard_error:.3f} a row"
