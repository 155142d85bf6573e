"""A fit by a few networks that were trained to predict together as all draws do: a five-hundredth of the work."""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from mile._checks import check_count, check_number
from mile._errors import warn
from mile._random import Stage, stream
from mile.features.base import Encoded
from mile.fitting._lessons import lessons, practice_rows
from mile.fitting._studying import study
from mile.fitting.compression import Source, compress_fit, show_estimate
from mile.fitting.known_rows import are_training_rows, left_out
from mile.fitting.result import Fit
from mile.fitting.unseen import Estimate
from mile.networks import MLP
from mile.networks.base import Network

N_NETWORKS = 24  # a five-hundredth of 12,000 draws; of airfoil 16 lost 0.04 of LPPD, these 0.03
LOSS = 0.03
_PRACTICE_ROWS = 8_192
_STEPS = 2_000  # from draws of the fit
_STEPS_FROM_NOTHING = 4_000  # with a width of their own
_CHOSEN_BY = 2_000  # rows, for the draws to begin with
_MOST_CHECKED = 1_000
_CHECKED_VALUES = 16
_FEWEST_ROWS = 8  # from which a quarter can be kept apart for the check
_ERRORS = 2.0  # standard errors that an observed loss may be above the allowed one


@dataclass(frozen=True, kw_only=True)
class Distillation:
    """What a student has lost, measured on rows that a student of the same kind was not taught.

    Attributes
    ----------
    n_networks, of_draws
        Networks that predict now, and draws before.
    expected
        Loss in log density per row, if y is as all draws say.
    observed
        Loss in LPPD by the y that were given; None without them.
    ignorance
        Correlation over rows between what the student and all draws say of ignorance.
    rows
        What rows these are of.
    instead
        Why this is a compressed model and no student; empty if it is one.
    """

    n_networks: int
    of_draws: int
    expected: Estimate
    observed: Estimate | None = None
    ignorance: float
    rows: str
    instead: str = ""

    def __repr__(self) -> str:
        lines = [f"{self.n_networks:,} networks for {self.of_draws:,} draws"]
        lines.append(f"expected loss of LPPD     {show_estimate(self.expected)}, {self.rows}")
        if self.observed is not None:
            lines.append(f"observed loss of LPPD     {show_estimate(self.observed)}, the same")
        lines.append(f"correlation of ignorance  {self.ignorance:.3f}")
        return "\n".join([*lines, self.instead] if self.instead else lines)


class _Teacher(NamedTuple):
    """A fit that is to be imitated, its draws, and how its students are made."""

    fit: Fit
    source: Source
    network: Network
    n_networks: int
    rng: np.random.Generator

    def start(self, x: Encoded) -> Float[np.ndarray, "network d"]:
        """Return draws that predict nearly as all do, or new networks where these have sizes of their own."""
        if self.network == self.fit.network:
            few = x[self.rng.permutation(len(x))[:_CHOSEN_BY]]
            chosen, _ = compress_fit(self.fit, few, n_draws=self.n_networks, random_state=int(self.rng.integers(2**31)))
            return np.asarray(chosen.chains.draws[:, 0])
        seed = int(self.rng.integers(2**31))
        keys = [stream(seed, Stage.INITIALIZE, place) for place in range(self.n_networks)]
        return np.stack([np.asarray(self.network.init(key)) for key in keys])

    def taught(self, x: Encoded) -> Float[np.ndarray, "network d"]:
        """Return networks that predict as the fit does, on rows like these and around them."""
        start = self.start(x)
        rows, near = practice_rows(x, _PRACTICE_ROWS, self.rng, is_table=self.network.describe_rows() is None)
        lesson, directions = lessons(self.fit, self.source, rows, near, self.n_networks, self.rng)
        seed, n_steps = int(self.rng.integers(2**31)), _STEPS
        if self.network != self.fit.network:
            n_steps = _STEPS_FROM_NOTHING
        return study(self.network, self.fit.likelihood, start, lesson, directions, n_steps, seed)

    def student(self, networks: Float[np.ndarray, "network d"]) -> Fit:
        """Return the fit with these networks in place of its draws."""
        order = np.arange(self.n_networks) % len(self.source.draws)
        unknown = np.full_like(self.source.place, -1)  # none of them has a log density in a chain
        smaller = replace(self.source, place=unknown).smaller(self.fit, order)
        return replace(
            smaller,
            network=self.network,
            members=smaller.members._replace(positions=networks),
            chains=smaller.chains._replace(draws=networks[:, None]),
        )


def distill_fit(
    fit: Fit,
    x: Encoded,
    y: np.ndarray | None = None,
    *,
    width: int | None = None,
    n_networks: int | None = None,
    loss: float | None = LOSS,
    random_state: int = 0,
) -> tuple[Fit, Distillation]:
    """Return a fit by few networks, each a chain with one draw, and what that loses.

    Parameters
    ----------
    fit
        To be imitated.
    x, y
        Encoded rows like those to predict, best those of the fit; and what was observed, only to measure the loss.
    width
        Units of each hidden layer of the networks; None: as in the fit, from whose draws they then begin.
    n_networks
        How many; None: 24.
    loss
        Largest loss in LPPD per row. If the student loses more, the result is a compressed fit, with a warning. None:
        the student in any case.
    random_state
        Seed of rows, values and steps.

    Raises
    ------
    ValueError
        If there are no rows, there are not so many draws, or the network can have no such width.
    """
    if len(x) < _FEWEST_ROWS:
        raise ValueError(f"distill needs at least {_FEWEST_ROWS} rows, best those of the fit; X has {len(x)}.")
    n_networks = check_count("n_networks", N_NETWORKS if n_networks is None else n_networks)
    if loss is not None:
        check_number("loss", loss, positive=True)
    x, y = np.asarray(x, np.float32), None if y is None else np.asarray(y)
    if y is not None and y.shape[:1] != (len(x),):
        raise ValueError(f"y must have one entry for each of the {len(x)} rows of X; got shape {y.shape}.")
    rng = np.random.default_rng(random_state)
    whole = _Teacher(fit, Source.of(fit), _network(fit, width), n_networks, rng)
    if n_networks >= len(whole.source.draws):
        raise ValueError(f"n_networks must be less than the {len(whole.source.draws):,} draws; got {n_networks:,}.")
    found = replace(_check(whole, x, y), of_draws=len(whole.source.draws))
    if loss is not None and _loses_more(found, loss):
        return _compressed(fit, x, y, found, loss, random_state)
    return whole.student(whole.taught(x)), found


def _network(fit: Fit, width: int | None) -> Network:
    """Return the network of the students."""
    if width is None:
        return fit.network
    if not isinstance(fit.network, MLP):
        raise ValueError(f"only a perceptron can have another width; this network is {type(fit.network).__name__}.")
    return replace(fit.network, hidden=(check_count("width", width),) * len(fit.network.hidden))


def _check(whole: _Teacher, x: Encoded, y: np.ndarray | None) -> Distillation:
    """Measure a student on rows that it was not taught, and its teacher not trained on if the fit has folds."""
    teacher, rows, kind = _apart(whole, x, y)
    networks = teacher.taught(np.delete(x, rows, axis=0))
    if y is not None:
        usable = rows[teacher.fit.response.usable(y[rows])]
        rows, y = (usable, y) if len(usable) else (rows, None)
    before, after = (one.for_encoded.predictive(x[rows]) for one in (teacher.fit, teacher.student(networks)))
    values = before.sample(_CHECKED_VALUES, int(whole.rng.integers(2**31)))
    log_ratios = [after.log_prob(one) - before.log_prob(one) for one in values]
    ignorance = np.corrcoef(before.uncertainty().ignorance, after.uncertainty().ignorance)[0, 1]
    return Distillation(
        n_networks=whole.n_networks,
        of_draws=len(whole.source.draws),
        # With q of the student and p of all draws, q / p - 1 - log(q / p) has the mean of log(p / q) and varies less.
        expected=_estimate(np.mean([np.expm1(ratio) - ratio for ratio in log_ratios], axis=0)),
        observed=None if y is None else _estimate(before.log_prob(y[rows]) - after.log_prob(y[rows])),
        ignorance=float(ignorance),
        rows=f"{len(rows):,} {kind}",
    )


def _apart(whole: _Teacher, x: Encoded, y: np.ndarray | None) -> tuple[_Teacher, Int[np.ndarray, " chosen"], str]:
    """Return rows for the check, what they are, and draws that have not seen them if the fit has folds."""
    fit = whole.fit
    unseen = fit.out_of_fold
    if unseen is not None and are_training_rows(fit, x, y):
        without = left_out(fit, 0, unseen.n_folds)
        source, rows = Source.of(without), np.sort(unseen.number[unseen.fold == 0][:_MOST_CHECKED])
        if len(rows) and len(source.draws) > whole.n_networks:
            return whole._replace(fit=without, source=source), rows, "out-of-fold rows"
    chosen = whole.rng.permutation(len(x))[: min(len(x) // 4, _MOST_CHECKED)]
    return whole, np.sort(chosen), "rows kept apart"


def _estimate(values: Float[np.ndarray, " row"]) -> Estimate:
    return Estimate(float(values.mean()), float(values.std() / np.sqrt(len(values))))


def _loses_more(found: Distillation, loss: float) -> bool:
    """Say whether the expected loss, or beyond its noise the observed one, is larger than allowed."""
    observed = found.observed
    too_much = observed is not None and observed.value - _ERRORS * observed.standard_error > loss
    return too_much or found.expected.value > loss


def _compressed(
    fit: Fit, x: Encoded, y: np.ndarray | None, found: Distillation, loss: float, random_state: int
) -> tuple[Fit, Distillation]:
    """Return a compressed fit, and say why."""
    try:
        smaller, kept = compress_fit(fit, x, y, loss=loss, random_state=random_state)
    except ValueError as error:
        raise ValueError(
            f"a student loses {show_estimate(found.expected)} of LPPD, more than loss={loss:g}, and so do compressed "
            f"models ({error}) Keep this model, or allow a larger loss."
        ) from error
    sentence = (
        f"The student loses {show_estimate(found.expected)} of LPPD (expected; {found.rows}), more than loss={loss:g}: "
        f"this is the model compressed to {kept.n_draws:,} draws instead."
    )
    warn(sentence)
    return smaller, replace(
        found, n_networks=kept.n_draws, expected=kept.expected, observed=kept.observed, instead=sentence
    )
