"""What the predictions of observed rows warn of, each with what to do."""

from collections.abc import Callable, Iterator

import numpy as np

from mile.fitting.result import Fit
from mile.report._rows import ObservedRows
from mile.report._scores import Assessment

_FEW_ROWS = 30
_LEVEL = 0.9
_STANDARD_ERRORS = 3.0  # beyond which a difference is not chance
_NORMAL_WIDTH = 3.29  # of a 90 % interval in standard deviations
_STD_EXCESS = 5.0


def cautions(rows: ObservedRows | None, assessment: Assessment | None) -> list[str]:
    """Return one sentence for everything that should be known about the predictions."""
    found = []
    if rows is not None and rows.n_unusable:
        found.append(
            f"{rows.n_unusable:,} of {rows.n_given:,} rows have no finite value or a label that training never saw, "
            "or another value that the model cannot have; they are left out."
        )
    if assessment is None:
        return found
    found += _about_observations(assessment.y)
    for name in assessment.mile.caution_names:
        found += _CAUTIONS[name](assessment)
    return [*found, *_about_ensemble(assessment)]


def about_training(fit: Fit, is_known: bool) -> list[str]:
    """Say that rows are those that the fit was trained on, and what it says of rows that were left out."""
    if not is_known or fit.out_of_fold is None:
        return []
    found = fit.out_of_fold.scores["lppd"]
    return [
        "These are the rows that the model was trained on, so scores, calibration and figures of them flatter it. Each "
        f"by chains that left it out, their LPPD is {found.value:.3f} ± {found.standard_error:.2g}; give test rows, or "
        "none, which shows out-of-fold scores."
    ]


def _about_observations(y: np.ndarray) -> Iterator[str]:
    if len(y) < _FEW_ROWS:
        number = "is only 1 observed row" if len(y) == 1 else f"are only {len(y)} observed rows"
        yield f"There {number}, so all scores are noisy; judge by more rows if you can."
    if len(y) > 1 and np.all(y == y[0]):
        yield "All observed values are the same, so the scores say nothing about what depends on the features."


def _about_coverage(assessment: Assessment) -> Iterator[str]:
    n_rows = len(assessment.y)
    inside = float(np.mean(np.abs(assessment.mile.pit(assessment.y) - 0.5) <= _LEVEL / 2))
    excess = (inside - _LEVEL) / np.sqrt(_LEVEL * (1 - _LEVEL) / n_rows)
    said = f"the 90 % intervals hold {100 * inside:.0f} % of {n_rows:,} rows"
    if excess < -_STANDARD_ERRORS:
        yield (
            f"Intervals are too narrow: {said}. See whether these rows come from the same source as the training rows; "
            "more chains and more sampling_steps widen them, and so does a larger prior_scale."
        )
    elif excess > _STANDARD_ERRORS:
        yield (
            f"Intervals are too wide: {said}. That errs on the safe side; if it matters, more warmup_steps or a larger "
            "network usually narrow them."
        )


def _about_spread(assessment: Assessment) -> Iterator[str]:
    width = np.diff(assessment.mile.interval(_LEVEL), axis=1)[:, 0]
    n_far = int(np.sum(assessment.mile.std > _STD_EXCESS * width / _NORMAL_WIDTH))
    if n_far:
        yield (
            f"A few draws with very high noise dominate the standard deviation of {n_far:,} "
            f"row{'' if n_far == 1 else 's'}; use intervals and quantiles instead of it."
        )


def _about_confidence(assessment: Assessment) -> Iterator[str]:
    confidence = assessment.mile.probs.max(axis=1)
    right = assessment.mile.labels == assessment.y
    error = np.sqrt(np.sum(confidence * (1 - confidence))) / len(right)
    excess = float(confidence.mean() - right.mean())
    if abs(excess) > _STANDARD_ERRORS * max(error, 1e-12) and abs(excess) > 1.0 / len(right):
        said = (
            f"confidence is {100 * confidence.mean():.0f} % on average where {100 * right.mean():.0f} % of the "
            "predictions are right"
        )
        if excess > 0:
            yield (
                f"Probabilities are too high: {said}. See whether these rows come from the same source as the training "
                "rows; more chains and more sampling_steps help against too much confidence."
            )
        else:
            yield (
                f"Probabilities are too low: {said}. That errs on the safe side; if it matters, more warmup_steps "
                "usually sharpen them."
            )


def _about_ensemble(assessment: Assessment) -> Iterator[str]:
    if assessment.mile is assessment.ensemble:
        return
    gain = assessment.log_prob - assessment.ensemble_log_prob
    with np.errstate(invalid="ignore"):
        mean, error = float(np.mean(gain)), float(np.std(gain)) / np.sqrt(len(gain))
    if mean < 0:
        chance = f" (standard error {error:.3f}, so it may be chance)" if -mean < 2 * error else ""
        yield (
            f"{[*assessment.scores][-1]} predicts these rows worse than the deep ensemble it started from, by "
            f"{-mean:.3f} in LPPD{chance}. "
            'Give more warmup_steps and sampling_steps, or use sampler="deep_ensemble".'
        )


_CAUTIONS: dict[str, Callable[[Assessment], Iterator[str]]] = {
    "coverage": _about_coverage,
    "spread": _about_spread,
    "confidence": _about_confidence,
}
