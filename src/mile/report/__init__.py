"""One page about a fit: how good its predictions are, what its chains did, and what to be careful about.

The page is a single HTML text without scripts, fonts or images from elsewhere. Figures are SVG whose colors the page
sets, so that they follow the reader's light or dark theme.
"""

import re
from collections.abc import Callable, Sequence
from typing import cast

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from mile._printable import one_line, without_commands
from mile.diagnose.diagnosis import Diagnosis, diagnose
from mile.execution import InProcess
from mile.explain.explanation import Explanation
from mile.features.base import ColumnReport
from mile.fitting.result import Fit
from mile.report import _cautions, _figures, _matters, _words
from mile.report._rows import ObservedRows, choose_rows
from mile.report._scores import Assessment, assess, headline, out_of_fold_table, parts_alone, worst_rows
from mile.report._templates import template

__all__ = ["render"]


def render(
    fit: Fit,
    x: Float[np.ndarray, "row feature"] | None = None,
    y: ArrayLike | None = None,
    *,
    title: str = "MILE report",
    rows: str = "test rows",
    feature_names: Sequence[str] | None = None,
    target: str | None = None,
    seconds: float | None = None,
    notes: Sequence[str] = (),
    numbers: np.ndarray | None = None,
    diagnosis: Diagnosis | None = None,
    columns: Sequence[ColumnReport] | None = None,
    explanation: Explanation | None = None,
) -> str:
    """Return the whole page as text.

    What decides comes first: scores, calibration, which columns matter, rows to look at. What the sampler did is folded
    away below, for experts.

    Parameters
    ----------
    fit
        As `mile.fit` returns it, or `model.fit_`.
    x, y
        Rows of raw features and what was observed, to judge the predictions by. Of very many rows an even selection
        is used, and the page says so. Without them the page has diagnostics only.
    title
        Of the page.
    rows
        What the rows are, such as "test rows".
    feature_names, target
        Names of the columns of x, and of y.
    seconds
        That the fit took.
    notes
        Sentences to add below the summary.
    numbers
        Where each row was in the user's table; by default as they come.
    diagnosis
        If `diagnose(fit, x)` has been called before.
    columns
        What became of the columns of a table; default: what the encoder says.
    explanation
        What `model.explain` says of these rows; None leaves out what matters.

    Returns
    -------
    str
        HTML.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from mile import MileRegressor
    >>> from mile.report import render
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = MileRegressor(preset="quick", n_chains=2, random_state=0).fit(X[50:], y[50:])
    >>> render(model.fit_, X[:50], y[:50], title="Diabetes")[:15]
    '<!doctype html>'
    """
    names = _words.feature_names(fit, feature_names)
    columns = fit.encoder.describe() if columns is None else columns
    if x is not None:
        x = fit.encoder.transform(x if fit.encoder.takes_tables else np.asarray(x))
    fit = fit.for_encoded
    target = None if target is None else one_line(target)
    used = choose_rows(fit, x, y, numbers)
    diagnosis, assessment = _judge(fit, used, diagnosis)
    page = template("page.html.j2").render(
        title=title,
        summary=_words.summary(fit, target, names, seconds),
        notes=list(notes),
        cautions=[*diagnosis.warnings, *_cautions.cautions(used, assessment)],
        sections=_figures.sections(fit, used, assessment, diagnosis, explanation, target or "y"),
        matters="" if explanation is None else _matters.in_words(explanation),
        **_about_rows(fit, used, assessment, rows, names),
        groups=_words.group_table(diagnosis),
        chains=_words.chain_table(diagnosis),
        columns=_words.column_table(columns),
        glossary=_words.GLOSSARY,
        configuration=_words.configuration(fit),
    )
    page = re.sub(r"(\d) %", "\\1\N{NO-BREAK SPACE}%", page)
    return without_commands(page)  # a name may contain anything, even half a character, which no file can


def _judge(fit: Fit, rows: ObservedRows | None, diagnosis: Diagnosis | None) -> tuple[Diagnosis, Assessment | None]:
    """Compute diagnosis and scores in parallel."""
    tasks: list[Callable[[], Assessment | Diagnosis | None]] = [
        lambda: diagnose(fit, None if rows is None else rows.x) if diagnosis is None else diagnosis,
        lambda: None if rows is None or rows.y is None else assess(fit, rows),
    ]
    found, assessment = InProcess().map(lambda task: task(), tasks)
    return cast(Diagnosis, found), cast(Assessment | None, assessment)


def _about_rows(
    fit: Fit, used: ObservedRows | None, assessment: Assessment | None, rows: str, names: list[str]
) -> dict[str, object]:
    """Return what the page says about predictions of observed rows."""
    if used is None or assessment is None:
        unseen = fit.out_of_fold
        table = None if unseen is None else out_of_fold_table(fit, unseen)
        about = {"scores": table, "rows": "" if unseen is None else f"Scores: out-of-fold, {len(unseen):,} rows"}
        note = _words.without_rows(used) if unseen is None else _words.OUT_OF_FOLD
        return about | {"worst": None, "parts": None, "rows_note": note}
    return {
        "scores": headline(fit, assessment),
        "parts": parts_alone(assessment),
        "worst": worst_rows(fit, used, assessment, names),
        "rows": f"Scores and figures are of {_words.describe_rows(used, rows)}",
        "rows_note": _words.about_scores(fit, used, assessment),
    }
