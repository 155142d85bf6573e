"""Which figures a page has, in which order, and how to read each."""

from collections.abc import Callable

import numpy as np

from mile import plot
from mile.diagnose.diagnosis import Diagnosis
from mile.explain.explanation import Explanation
from mile.fitting.result import Fit
from mile.plot._style import even_choice
from mile.report import _matters
from mile.report._rows import ObservedRows
from mile.report._scores import Assessment
from mile.report._svg import Drawing, draw, settings

_COUNTED_ROWS, _COUNTING_DRAWS = 500, 200  # of a rootogram, which asks for the probability of each count


def sections(
    fit: Fit,
    rows: ObservedRows | None,
    assessment: Assessment | None,
    diagnosis: Diagnosis,
    explanation: Explanation | None,
    target: str,
) -> dict[str, list[Drawing]]:
    """Return the figures of the parts of a page: predictions, what matters, where it is unsure, sampling, mixing."""
    with settings():
        return {
            "predictions": [] if rows is None or assessment is None else _predictions(fit, rows, assessment, target),
            "matters": [] if explanation is None else _matters.drawings(explanation, target),
            "unsure": [] if explanation is None else _matters.unsure(explanation, target),
            "sampling": [*([] if rows is None or assessment is None else [_accumulation(fit, rows)]), *_tuning(fit)],
            "mixing": _mixing(diagnosis),
        }


def _predictions(fit: Fit, rows: ObservedRows, assessment: Assessment, target: str) -> list[Drawing]:
    """Return the figures that the predictive distribution names."""
    found = [_FIGURES[name](fit, rows, assessment, target) for name in assessment.mile.figure_names]
    return [figure for figure in found if figure is not None]


def _uncertainty(fit: Fit, rows: ObservedRows, assessment: Assessment, target: str) -> Drawing:
    return draw(
        "uncertainty",
        plot.uncertainty,
        assessment.mile,
        target=target,
        help="Each dot is a row. Noise stays however much data there is; ignorance is what more data would remove.",
    )


def _reliability(fit: Fit, rows: ObservedRows, assessment: Assessment, target: str) -> Drawing:
    return draw(
        "reliability",
        plot.reliability,
        assessment.mile,
        assessment.y,
        name=[*assessment.scores][-1],
        help="On the diagonal, stated and actual confidence agree.",
    )


def _confidence(fit: Fit, rows: ObservedRows, assessment: Assessment, target: str) -> Drawing:
    help = "Wrong predictions should have low confidence."
    return draw("confidence", plot.confidence, assessment.mile, assessment.y, help=help)


def _confusion(fit: Fit, rows: ObservedRows, assessment: Assessment, target: str) -> Drawing:
    help = "A row of the figure is an observed class; on the diagonal its rows are predicted as what they are."
    return draw("confusion", plot.confusion, assessment.mile, assessment.y, help=help)


def _roc(fit: Fit, rows: ObservedRows, assessment: Assessment, target: str) -> Drawing:
    help = "Toward the upper left is better; the dotted line is guessing."
    return draw("roc", plot.roc, assessment.mile, assessment.y, help=help)


def _rootogram(fit: Fit, rows: ObservedRows, assessment: Assessment, target: str) -> Drawing:
    chosen = even_choice(len(rows.x), _COUNTED_ROWS)
    each = int(np.clip(-(-_COUNTING_DRAWS // int(fit.ok.sum())), 1, fit.chains.draws.shape[1]))
    few = fit.thinned(each).predictive(rows.x[chosen])
    help = "Bars hang from what was expected; where they miss the zero line by more than the band, it is not chance."
    return draw("rootogram", plot.rootogram, few, assessment.y[chosen], help=help)


def _intervals(fit: Fit, rows: ObservedRows, assessment: Assessment, target: str) -> Drawing:
    return draw(
        "intervals",
        plot.intervals,
        assessment.mile,
        assessment.y,
        target=target,
        help="Each bar is the interval of one row; one in ten rows should lie outside.",
    )


def _coverage(fit: Fit, rows: ObservedRows, assessment: Assessment, target: str) -> Drawing:
    return draw(
        "coverage",
        plot.coverage,
        assessment.mile,
        assessment.y,
        name=[*assessment.scores][-1],
        other=None if assessment.ensemble is assessment.mile else assessment.ensemble,
        help="On the diagonal, as many rows lie inside as the intervals promise. Below it they are too narrow.",
    )


def _pit(fit: Fit, rows: ObservedRows, assessment: Assessment, target: str) -> Drawing:
    help = "Flat is right. A U means intervals too narrow, a hump too wide."
    return draw("pit", plot.pit, assessment.mile, assessment.y, help=help)


def _surprises(fit: Fit, rows: ObservedRows, assessment: Assessment, target: str) -> Drawing | None:
    shape = fit.network.input_shape
    if len(shape) not in (2, 3):
        return None
    return draw(
        "surprises",
        plot.surprises,
        assessment.mile,
        assessment.y,
        rows.x.reshape(-1, *shape),
        help="Below each image the predicted label, and the one it has. Some labels may be mistakes.",
    )


def _survival(fit: Fit, rows: ObservedRows, assessment: Assessment, target: str) -> Drawing:
    return draw(
        "survival",
        plot.survival,
        assessment.mile,
        assessment.y,
        target=target,
        help="The predicted curve should stay in the band, which is what chance leaves open.",
    )


def _survival_calibration(fit: Fit, rows: ObservedRows, assessment: Assessment, target: str) -> Drawing:
    help = "On the diagonal, groups of rows survive the median time as often as was predicted of them."
    return draw("survival-calibration", plot.survival_calibration, assessment.mile, assessment.y, help=help)


def _several_outputs(fit: Fit, rows: ObservedRows, assessment: Assessment, target: str) -> Drawing:
    help = "On the diagonal, as many rows lie inside as the intervals of an output promise."
    return draw("several-outputs", plot.several_outputs, assessment.mile, assessment.y, help=help)


def _residual_correlation(fit: Fit, rows: ObservedRows, assessment: Assessment, target: str) -> Drawing:
    return draw(
        "residual-correlation",
        plot.residual_correlation,
        assessment.mile,
        assessment.y,
        help="Where residuals go together and the prediction does not, a multivariate_gaussian likelihood would help.",
    )


_FIGURES: dict[str, Callable[[Fit, ObservedRows, Assessment, str], Drawing | None]] = {
    "intervals": _intervals,
    "coverage": _coverage,
    "pit": _pit,
    "uncertainty": _uncertainty,
    "reliability": _reliability,
    "confidence": _confidence,
    "confusion": _confusion,
    "roc": _roc,
    "rootogram": _rootogram,
    "surprises": _surprises,
    "several_outputs": _several_outputs,
    "residual_correlation": _residual_correlation,
    "survival": _survival,
    "survival_calibration": _survival_calibration,
}


def _accumulation(fit: Fit, rows: ObservedRows) -> Drawing:
    return draw(
        "accumulation",
        plot.accumulation,
        fit,
        rows.x,
        rows.y,
        help="If the thick line is level at its end, more draws would add little; its distance from the thin lines is "
        "what several chains are worth.",
    )


def _tuning(fit: Fit) -> list[Drawing]:
    return [
        draw("trace", plot.trace, fit, help="One line a chain. It should be level in the last part."),
        draw(
            "energy", plot.energy, fit, help="Tuning steers each chain to the wanted level; above it steps are coarse."
        ),
        draw("step-size", plot.step_size, fit, help="Found while tuning and fixed from then on."),
    ]


def _mixing(diagnosis: Diagnosis) -> list[Drawing]:
    spread = "Bar: quartiles over chains and quantities. Line: 5 % to 95 %. Dot: median."
    return [
        draw("ess", plot.ess, diagnosis, help=f"More is better. {spread}"),
        draw("rhat", plot.rhat, diagnosis, help=f"Near 1, a chain's quarters agree. {spread}"),
        draw(
            "variances",
            plot.variances,
            diagnosis,
            help="Weights may differ, for different weights can be the same function; predictions should not.",
        ),
        draw("virial", plot.virial, diagnosis, help="Below 1 chains explored too little; above, steps are too large."),
    ]
