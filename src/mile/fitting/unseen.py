"""What chains that never saw a row say of it, for every row: the honest scores of a fit without rows set aside."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from mile._schema import require
from mile.metrics import OF_OUTPUT, SCORES
from mile.storage import schema

_N_BINS = 15  # of confidence, as in metrics.expected_calibration_error
_RESAMPLES = 200  # for the standard error of a score that is no mean over rows
_SCORE, _ENSEMBLE, _VALUE = "oof.score.", "oof.ensemble.", "oof.value."

OfRow = Float[np.ndarray, " row"]


class Estimate(NamedTuple):
    """A score, and its standard error over rows."""

    value: float
    standard_error: float


@dataclass(frozen=True, eq=False, repr=False)
class OutOfFold:
    """Predictions of rows by chains that left them out, neither in sampling nor in stopping.

    The repr is a table of the scores.

    Attributes
    ----------
    number
        Position of each row in the table that the user passed. Of very many rows an even selection is here.
    weight
        How many times each row counts.
    fold
        Of each row.
    n_folds
        That rotate.
    chain_log_density, member_log_density
        Log density of each row under the chains, and under the members of the ensemble that they start from, that left
        it out: the entry of a slot s and a row of the fold f is of chain s * n_folds + f. NaN where that one failed.
    row_scores
        Scores of single rows by name, under the weights that chains and members have without these rows' fold.
    ensemble_scores
        The same of the starting ensemble.
    values
        Of single rows, by the chains that left them out, which count the same here: of numbers `mean`, `std` and
        `distance`, that of the mean to what was observed.
    """

    number: Int[np.ndarray, " row"]
    weight: OfRow
    fold: Int[np.ndarray, " row"]
    n_folds: int
    chain_log_density: Float[np.ndarray, "slot row"]
    member_log_density: Float[np.ndarray, "slot row"]
    row_scores: dict[str, OfRow]
    ensemble_scores: dict[str, OfRow]
    values: dict[str, OfRow] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.number)

    @cached_property
    def scores(self) -> dict[str, Estimate]:
        """Scores by name, each with its standard error."""
        return summarize(self.row_scores, self.weight)

    @cached_property
    def scores_of_ensemble(self) -> dict[str, Estimate]:
        """The same of the ensemble that the chains start from."""
        return summarize(self.ensemble_scores, self.weight)

    def __repr__(self) -> str:
        lines = [f"out-of-fold, {len(self):,} rows, {self.n_folds} folds"]
        width = max(len(SCORES[name].label) for name in self.scores)
        lines.append(f"{'':{width}}  {'all draws':>18}  {'deep ensemble':>18}")
        for name, estimate in self.scores.items():
            cells = [show(name, one) for one in (estimate, self.scores_of_ensemble[name])]
            lines.append(f"{SCORES[name].label:{width}}  {cells[0]:>18}  {cells[1]:>18}")
        return "\n".join(lines)

    def tensors(self) -> dict[str, np.ndarray]:
        """Return what a file keeps."""
        found = {
            "oof.number": np.asarray(self.number, np.int64),
            "oof.weight": np.asarray(self.weight, np.float32),
            "oof.fold": np.asarray(self.fold, np.int32),
            "oof.n_folds": np.asarray(self.n_folds, np.int32),
            "oof.chain_log_density": np.asarray(self.chain_log_density, np.float64),
            "oof.member_log_density": np.asarray(self.member_log_density, np.float64),
        }
        named = ((_SCORE, self.row_scores), (_ENSEMBLE, self.ensemble_scores), (_VALUE, self.values))
        return found | {
            prefix + name: np.asarray(values, np.float64) for prefix, kept in named for name, values in kept.items()
        }

    @classmethod
    def read(cls, arrays: Mapping[str, np.ndarray], n_chains: int) -> "OutOfFold | None":
        """Return what a file has kept of so many chains; None if it has nothing.

        Raises
        ------
        UntrustedFileError
            If anything is missing or impossible.
        """
        own = {name: array for name, array in arrays.items() if name.startswith(schema.OUT_OF_FOLD_PREFIX)}
        if not own:
            return None
        schema.check_out_of_fold(own, n_chains)

        def below(prefix: str) -> dict[str, np.ndarray]:
            return {name.removeprefix(prefix): array for name, array in own.items() if name.startswith(prefix)}

        scores, ensemble = below(_SCORE), below(_ENSEMBLE)
        is_known = scores and set(scores) == set(ensemble) and are_scores(summarized_names(scores))
        require(is_known, "the out-of-fold scores are not those of a fit and of its ensemble.")
        return cls(
            number=own["oof.number"],
            weight=own["oof.weight"],
            fold=own["oof.fold"],
            n_folds=int(own["oof.n_folds"]),
            chain_log_density=own["oof.chain_log_density"],
            member_log_density=own["oof.member_log_density"],
            row_scores=scores,
            ensemble_scores=ensemble,
            values=below(_VALUE),
        )


def show(name: str, estimate: Estimate) -> str:
    """Write a score with its standard error."""
    if SCORES[name].unit == "share":
        return f"{100 * estimate.value:.1f} ± {100 * estimate.standard_error:.1f} %"
    return f"{estimate.value:.4g} ± {estimate.standard_error:.2g}"


def summarized_names(row_scores: Mapping[str, OfRow]) -> list[str]:
    """Return the names of the scores that scores of single rows give."""
    return [_summary_of(name)[0] for name in row_scores]


def are_scores(names: Iterable[str]) -> bool:
    """Say whether all names are of scores, of one output or of several."""
    return {name.partition(OF_OUTPUT)[0] for name in names} <= set(SCORES)


def _summary_of(name: str) -> tuple[str, "_Summary"]:
    """Return the name of the score that scores of single rows give, and how."""
    base, mark, output = name.partition(OF_OUTPUT)
    label, summary = _SUMMARIES.get(base, (base, _mean))
    return label + mark + output, summary


def summarize(row_scores: Mapping[str, OfRow], weight: OfRow) -> dict[str, Estimate]:
    """Return scores of all rows from those of single rows, with standard errors that take rows for independent."""
    found = {}
    for name, values in row_scores.items():
        label, summary = _summary_of(name)
        found[label] = summary(values, weight, row_scores)
    outputs = list(dict.fromkeys(name.partition(OF_OUTPUT)[2] for name in found))
    order = [*SCORES]

    def place(name: str) -> tuple[int, int]:
        base, _, output = name.partition(OF_OUTPUT)
        return outputs.index(output), order.index(base)

    return {name: found[name] for name in sorted(found, key=place)}


def _mean(values: OfRow, weight: OfRow, row_scores: Mapping[str, OfRow] | None = None) -> Estimate:
    share = np.asarray(weight, np.float64) / np.sum(weight, dtype=np.float64)
    mean = float(share @ values)
    variance = np.square(share) @ np.square(values - mean) * len(values) / max(len(values) - 1, 1)
    return Estimate(mean, float(np.sqrt(variance)))


def _root(values: OfRow, weight: OfRow, row_scores: Mapping[str, OfRow]) -> Estimate:
    """Return the root of the mean, its standard error by the delta method."""
    mean, error = _mean(values, weight)
    root = float(np.sqrt(mean))
    return Estimate(root, error / (2.0 * root) if root > 0.0 else 0.0)


def _calibration_error(values: OfRow, weight: OfRow, row_scores: Mapping[str, OfRow]) -> Estimate:
    """Return the expected calibration error; its standard error is that of resampled rows, always the same ones."""
    right, rng = row_scores["accuracy"], np.random.default_rng(0)
    bins = np.minimum((values * _N_BINS).astype(int), _N_BINS - 1)
    gap = np.asarray(weight, np.float64) * (values - right)

    def error(rows: np.ndarray) -> float:
        sums = np.bincount(bins[rows], weights=gap[rows], minlength=_N_BINS)
        return float(np.abs(sums).sum() / weight[rows].sum())

    resampled = [error(rng.integers(len(values), size=len(values))) for _ in range(_RESAMPLES)]
    return Estimate(error(np.arange(len(values))), float(np.std(resampled)))


# What scores of single rows are together, where that is not their mean.
_Summary = Callable[[OfRow, OfRow, Mapping[str, OfRow]], Estimate]
_SUMMARIES: dict[str, tuple[str, _Summary]] = {
    "squared_error": ("rmse", _root),
    "confidence": ("expected_calibration_error", _calibration_error),
}
