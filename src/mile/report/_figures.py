"""Which figures a page has, in which order, and how to read each."""

from typing import Any

from mile import plot
from mile.diagnose import Diagnosis
from mile.predict import ClassPredictive
from mile.report._rows import Rows
from mile.report._scores import Assessment
from mile.report._svg import Drawing, draw, settings
from mile.results import Fit


def sections(
    fit: Fit, rows: Rows | None, assessment: Assessment | None, diagnosis: Diagnosis, target: str
) -> dict[str, list[Drawing]]:
    """Return the figures of the parts of a page: predictions, sampling, mixing."""
    with settings():
        return {
            "predictions": [] if assessment is None else _predictions(fit, rows, assessment, target),
            "sampling": [*([] if rows is None or assessment is None else [_accumulation(fit, rows)]), *_tuning(fit)],
            "mixing": _mixing(diagnosis),
        }


def _predictions(fit: Fit, rows: Rows | None, assessment: Assessment, target: str) -> list[Drawing]:
    mile, y, name = assessment.mile, assessment.y, [*assessment.scores][-1]
    uncertainty = draw(
        "uncertainty",
        plot.uncertainty,
        mile,
        help="Each dot is a row. Noise stays however much data there is; ignorance is what more data would remove.",
        **({} if isinstance(mile, ClassPredictive) else {"target": target}),
    )
    if isinstance(mile, ClassPredictive):
        found = [
            draw(
                "reliability",
                plot.reliability,
                mile,
                y,
                name=name,
                help="On the diagonal, stated and actual confidence agree.",
            ),
            draw("confidence", plot.confidence, mile, y, help="Wrong predictions should have low confidence."),
        ]
        return [*found, uncertainty, *_surprises(fit, rows, assessment)]
    other: Any = None if assessment.ensemble is mile else assessment.ensemble
    return [
        draw(
            "intervals",
            plot.intervals,
            mile,
            y,
            target=target,
            help="Each bar is the interval of one row; one in ten rows should lie outside.",
        ),
        draw(
            "coverage",
            plot.coverage,
            mile,
            y,
            name=name,
            other=other,
            help="On the diagonal, as many rows lie inside as the intervals promise. Below it they are too narrow.",
        ),
        draw("pit", plot.pit, mile, y, help="Flat is right. A U means intervals too narrow, a hump too wide."),
        uncertainty,
    ]


def _surprises(fit: Fit, rows: Rows | None, assessment: Assessment) -> list[Drawing]:
    shape = getattr(fit.network, "input_shape", ())
    if rows is None or len(shape) not in (2, 3):
        return []
    return [
        draw(
            "surprises",
            plot.surprises,
            assessment.mile,
            assessment.y,
            rows.x.reshape(-1, *shape),
            help="Below each image the predicted label, and the one it has. Some labels may be mistakes.",
        )
    ]


def _accumulation(fit: Fit, rows: Rows) -> Drawing:
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
