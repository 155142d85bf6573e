"""One page about a fit: how good its predictions are, what its chains did, and what to be careful about.

The page is a single HTML text without fonts or images from elsewhere. Its one script, of a few kilobytes, is in it and
named by its hash in the page's policy, which allows nothing else. Figures are SVG whose colors the page sets, so that
they follow the reader's light or dark theme.
"""

import re
from collections.abc import Callable, Sequence
from typing import cast

import numpy as np
from jaxtyping import Float
from markupsafe import Markup
from numpy.typing import ArrayLike

from mile._printable import one_line, without_commands
from mile.diagnose.diagnosis import Diagnosis, diagnose
from mile.execution import InProcess
from mile.explain.explanation import Explanation
from mile.features.base import ColumnReport
from mile.fitting.known_rows import are_training_rows
from mile.fitting.result import Fit
from mile.report import _cautions, _figures, _matters, _words
from mile.report._baselines import Others, baselines, comparison
from mile.report._explorer import explorer, script, script_hash
from mile.report._rows import ObservedRows, choose_rows
from mile.report._scores import Assessment, Cells, assess, headline, out_of_fold_table, parts_alone, worst_rows
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
    training: tuple[np.ndarray, np.ndarray] | None = None,
    reproduce: str = "",
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
        What the user calls each row: its place in the table, or an identifier; by default places as they come.
    diagnosis
        If `diagnose(fit, x)` has been called before.
    columns
        What became of the columns of a table; default: what the encoder says.
    explanation
        What `model.explain` says of these rows; None leaves out what matters.
    training
        Encoded training rows, each at its place, and what was observed of them: what simpler models are fitted to.
        Without them these learn from the rows that are judged, by leaving out folds.
    reproduce
        A line of code, or a command, that makes this fit again.

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
    is_known = x is not None and y is not None and are_training_rows(fit, x, np.asarray(y))
    diagnosis, assessment = _judge(fit, used, diagnosis)
    page = template("page.html.j2").render(
        title=title,
        summary=_words.summary(fit, target, names, seconds),
        notes=list(notes),
        cautions=[*_cautions.about_training(fit, is_known), *diagnosis.warnings, *_cautions.cautions(used, assessment)],
        sections=_figures.sections(fit, used, assessment, diagnosis, explanation, target or "y"),
        matters="" if explanation is None else _matters.in_words(explanation),
        **_about_rows(fit, used, assessment, "training rows" if is_known else rows, names),
        baselines=_beside_baselines(fit, used, assessment, None if is_known else training, training),
        explorer=None if used is None or assessment is None else explorer(fit, used, target or "y"),
        script=Markup(script()),
        script_hash=script_hash(),
        reproduce=reproduce,
        numbering="rows are counted from 0."
        if numbers is None or np.asarray(numbers).dtype.kind in "iu"
        else "rows by their names.",
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


def _beside_baselines(
    fit: Fit,
    used: ObservedRows | None,
    assessment: Assessment | None,
    training: tuple[np.ndarray, np.ndarray] | None,
    kept: tuple[np.ndarray, np.ndarray] | None,
) -> Cells | None:
    """Return the table of the fit beside simpler models, of the observed rows or of those that folds left out."""
    unseen = fit.out_of_fold
    if used is not None and assessment is not None:
        found = baselines(fit, used.x, assessment.y, training)
        densities = assessment.log_prob, assessment.ensemble_log_prob
        others = Others.of(fit, assessment)
        if assessment.mile is assessment.ensemble:
            densities = densities[0], densities[0]
    elif unseen is not None and kept is not None:
        found = baselines(fit, kept[0][unseen.number], kept[1][unseen.number], fold=unseen.fold)
        densities = unseen.row_scores["lppd"], unseen.ensemble_scores["lppd"]
        others = Others.of_rows(unseen.scores, unseen.scores_of_ensemble)
    else:
        return None
    return None if found is None else comparison(fit, found, *densities, others) | {"words": found.words}


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
