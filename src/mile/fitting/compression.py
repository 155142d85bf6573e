"""A fit by a few of its draws that predict as all of them do: a hundredth of the file, and of the time to predict."""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Int

from mile._checks import check_count, check_number
from mile._errors import Status
from mile.features.base import Encoded
from mile.fitting._herding import Ratios, crossed, evenly, expected_loss, herd
from mile.fitting.candidates import flat_draws, weighted_draws
from mile.fitting.known_rows import are_training_rows, left_out
from mile.fitting.result import Fit
from mile.fitting.unseen import Estimate
from mile.likelihoods.weights import EQUAL, DrawWeights
from mile.predict import predict
from mile.samplers import Tuned

_ROWS, _VALUES = 1_000, 4  # to choose by, and values of y for each; the loss is measured on half as many other rows
_CANDIDATES = 4_096  # draws to choose among, an even selection of more; for each draw wanted, at least so many:
_OF_EACH = 8
_OF_WEIGHTED = 4  # candidates for each draw at most: one that weighs more than others stands among them repeatedly
_N_DRAWS = 128
_SIZES = [round(2.0 ** (half / 2)) for half in range(6, 23)]  # that a wanted loss may lead to: 8 to 2,048
_CELLS = 1 << 21  # draws x rows that are evaluated at once
_FEWEST_ROWS = 8  # from which some can be kept apart for measuring
_MOST_SCORED = 4_000  # rows of a table, for the loss that is observed


@dataclass(frozen=True, kw_only=True)
class Compression:
    """What a smaller model has lost.

    Attributes
    ----------
    n_draws, of_draws
        Draws that predict now, and before.
    expected
        Loss in log density per row, if y is as the larger model says; on rows that the choice did not see.
    observed
        Loss in LPPD by the y that were given; None without them.
    rows
        What rows the observed loss is of. Out-of-fold rows are predicted by the draws of chains that left them out, of
        which the smaller model has fewer than of all: its loss on new rows is smaller than this.
    """

    n_draws: int
    of_draws: int
    expected: Estimate
    observed: Estimate | None = None
    rows: str = ""

    def __repr__(self) -> str:
        lines = [
            f"{self.n_draws:,} of {self.of_draws:,} draws",
            f"expected loss of LPPD  {show_estimate(self.expected)}",
        ]
        if self.observed is not None:
            lines.append(f"observed loss of LPPD  {show_estimate(self.observed)}, {self.rows}")
        return "\n".join(lines)


def show_estimate(estimate: Estimate) -> str:
    """Write a loss with its standard error."""
    return f"{estimate.value:.4f} ± {estimate.standard_error:.4f}"


def compress_fit(
    fit: Fit,
    x: Encoded,
    y: np.ndarray | None = None,
    *,
    n_draws: int | None = None,
    loss: float | None = None,
    random_state: int = 0,
) -> tuple[Fit, Compression]:
    """Return a fit with few draws, each a chain of its own, and what that loses.

    Parameters
    ----------
    fit
        To make smaller. What its chains and members weigh decides how often draws of each are chosen.
    x, y
        Encoded rows like those to predict, best those of the fit; and what was observed, only to measure the loss.
    n_draws
        How many to keep; None: 128, or as few as `loss` allows.
    loss
        Largest expected loss in log density per row; then the size is found.
    random_state
        Seed of the rows between given ones and of the values that the choice is made by.

    Raises
    ------
    ValueError
        If both a size and a loss are given, there are no rows, or no number of draws loses so little.
    """
    if n_draws is not None and loss is not None:
        raise ValueError("give n_draws or loss, not both: a loss decides the number of draws.")
    if not len(x):
        raise ValueError("compress needs rows like those to predict, best those of the fit; X has none.")
    source = Source.of(fit)
    if loss is None:
        sizes = [check_count("n_draws", _N_DRAWS if n_draws is None else n_draws)]
    else:
        check_number("loss", loss, positive=True)
        sizes = [size for size in _SIZES if size < len(source.draws)]
    if not sizes or sizes[-1] >= len(source.draws):
        raise ValueError(f"n_draws must be less than the {len(source.draws):,} draws of the model; got {sizes[-1]:,}.")
    choice = _Choice.of(fit, source, np.asarray(x, np.float32), sizes[-1], np.random.default_rng(random_state))
    order, expected = choice.of_size(sizes[0])
    for size in sizes[1:]:
        if loss is None or expected.value <= loss:
            break
        order, expected = choice.of_size(size)
    if loss is not None and expected.value > loss:
        raise ValueError(f"{len(order):,} draws still lose {expected.value:.4f}, more than loss={loss:g}.")
    order = np.sort(order)
    smaller = source.smaller(fit, order)
    found = Compression(n_draws=len(order), of_draws=len(source.draws), expected=expected)
    if y is not None:
        found = _observed(fit, source, smaller, order, x, np.asarray(y), found)
    return smaller, found


@dataclass(frozen=True, kw_only=True, eq=False)
class Source:
    """The draws that predict, with their weights, and where each is from: its chain, and its place there."""

    draws: np.ndarray
    weights: DrawWeights
    chain: Int[np.ndarray, " draw"]
    place: Int[np.ndarray, " draw"]  # -1: the member that the chain starts from

    @classmethod
    def of(cls, fit: Fit) -> "Source":
        """Return the draws that count in a fit."""
        length = fit.chains.logdensity.shape[1]
        of_chains, of_members = np.flatnonzero(fit.chain_weights > 0.0), np.flatnonzero(fit.member_weights > 0.0)
        if fit.weights is None:
            draws, weights = flat_draws(fit.chains.draws, fit.ok), EQUAL
        else:
            draws, weights = weighted_draws(fit.chains.draws, fit.members.positions, fit.weights)
        places = np.concatenate([np.tile(np.arange(length), len(of_chains)), np.full(len(of_members), -1)])
        whole = draws if isinstance(draws, np.ndarray) else np.asarray(draws[0 : len(draws)])
        return cls(
            draws=whole,
            weights=weights,
            chain=np.concatenate([np.repeat(of_chains, length), of_members]),
            place=places,
        )

    def smaller(self, fit: Fit, order: Int[np.ndarray, " choice"]) -> Fit:
        """Return the fit with chosen draws, which count the same; each is a chain with one draw."""
        chain, chains, members = self.chain[order], fit.chains, fit.members
        cost = np.where(np.isin(np.arange(len(chain)), np.unique(chain, return_index=True)[1]), 1, 0)
        good = (Status.OK,) * len(chain)
        tuned = Tuned(chains.tuned.step_size[chain], chains.tuned.L[chain])
        last = list(chains.info)[-1:]
        return replace(
            fit,
            members=members._replace(
                positions=members.positions[chain],
                status=good,
                epochs=members.epochs[chain],
                validation_loss=members.validation_loss[chain],
            ),
            chains=chains._replace(
                draws=self.draws[order][:, None],
                logdensity=self._of_draws(chains.logdensity, order),
                energy_change=self._of_draws(chains.energy_change, order),
                status=good,
                tuned=tuned,
                info={name: {"step_size": tuned.step_size, "L": tuned.L} for name in last},
                history={},
                gradient_evaluations=cost * chains.gradient_evaluations[chain],
            ),
            chain_ids=np.arange(len(chain)),
            status=good,
            weights=None,
            out_of_fold=None,
        )

    def _of_draws(self, values: np.ndarray, order: np.ndarray) -> np.ndarray:
        """Return numbers (chain, draw) of chosen draws, one each; a member has none."""
        chain, place = self.chain[order], self.place[order]
        return np.where(place < 0, np.nan, values[chain, place])[:, None].astype(values.dtype)


@dataclass(frozen=True, kw_only=True, eq=False)
class _Choice:
    """Candidates, and their ratios on rows to choose by and on others to measure the loss."""

    candidates: Int[np.ndarray, " candidate"]
    learning: Ratios
    measuring: Ratios

    @classmethod
    def of(cls, fit: Fit, source: Source, x: Encoded, most: int, rng: np.random.Generator) -> "_Choice":
        wanted = min(max(_CANDIDATES, _OF_EACH * most), _OF_WEIGHTED * len(source.draws))
        candidates = evenly(source.weights, len(source.draws), wanted)
        apart = np.zeros(len(x), bool)
        if len(x) >= _FEWEST_ROWS:
            apart[rng.permutation(len(x))[: len(x) // 4]] = True
        others = x[apart] if apart.any() else x
        draws = source.draws[candidates]
        learning, measuring = (
            _ratios(fit, draws, crossed(part, n_rows, rng), rng)
            for part, n_rows in ((x[~apart], _ROWS), (others, _ROWS // 2))
        )
        return cls(candidates=candidates, learning=learning, measuring=measuring)

    def of_size(self, n_draws: int) -> tuple[Int[np.ndarray, " choice"], Estimate]:
        """Return so many draws and what they lose."""
        chosen = herd(self.learning, n_draws)
        return self.candidates[chosen], expected_loss(self.measuring, chosen)


def _ratios(fit: Fit, draws: np.ndarray, x: Encoded, rng: np.random.Generator) -> Ratios:
    """Return the density of each draw over that of all of them, at values of y that they predict."""
    rows = np.repeat(x, _VALUES, axis=0)
    found = np.empty((len(draws), len(rows)), np.float32)
    size = max(1, _CELLS // len(draws))
    for start in range(0, len(rows), size):
        predictive = predict(fit.network, fit.likelihood, draws, rows[start : start + size], fit.response)
        y = predictive.sample(1, int(rng.integers(2**31)))[0]
        log_density = predictive.log_prob_per_draw(y)
        found[:, start : start + size] = np.exp(log_density - EQUAL.log_mean_exp(log_density))
    return found


def _observed(
    fit: Fit, source: Source, smaller: Fit, order: np.ndarray, x: Encoded, y: np.ndarray, found: Compression
) -> Compression:
    """Add the loss in LPPD on given rows, by chains that left them out where these are the rows of the fit."""
    if y.shape[:1] != (len(x),):
        raise ValueError(f"y must have one entry for each of the {len(x)} rows of X; got shape {y.shape}.")
    unseen = fit.out_of_fold
    if unseen is None or not are_training_rows(fit, x, y):
        rows = np.flatnonzero(fit.response.usable(y))
        rows = rows[:: max(1, len(rows) // _MOST_SCORED)]
        if not len(rows):
            raise ValueError("no row has an outcome that the model can score: leave y out.")
        before, after = (one.for_encoded.predictive(x[rows]).log_prob(y[rows]) for one in (fit, smaller))
        return _with_loss(found, before, after, "rows given")
    before, after = np.full((2, len(unseen)), np.nan)
    for fold in range(unseen.n_folds):
        here, own = np.flatnonzero(unseen.fold == fold), np.flatnonzero(source.chain[order] % unseen.n_folds == fold)
        rows = unseen.number[here]
        if not len(own) or not len(rows):
            continue
        before[here] = left_out(fit, fold, unseen.n_folds).for_encoded.predictive(x[rows]).log_prob(y[rows])
        after[here] = smaller.for_encoded.predictive(x[rows], chains=own.tolist()).log_prob(y[rows])
    known = ~np.isnan(before)
    if not known.any():
        return found
    return _with_loss(found, before[known], after[known], "out-of-fold rows")


def _with_loss(found: Compression, before: np.ndarray, after: np.ndarray, rows: str) -> Compression:
    loss = before - after
    error = float(loss.std() / np.sqrt(len(loss)))
    return replace(found, observed=Estimate(float(loss.mean()), error), rows=f"{len(loss):,} {rows}")
