"""`mile predict`, `evaluate`, `report` and `export`: commands that use a fitted model."""

import contextlib
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from mile import metrics
from mile._errors import CorruptFileError
from mile.cli._console import Console, figure, table
from mile.cli._data import feature_names, features_for, fitted, kept_columns, response_for
from mile.cli._images import read_images
from mile.cli._reading import DataFile
from mile.cli._target import drop_unknown
from mile.cli._texts import read_texts, takes_texts
from mile.estimators import encode_rows
from mile.estimators.loading import Model, load, read_training, read_validation
from mile.explain import Explanation, column_table, explain_briefly
from mile.export import export_fit
from mile.fitting.conformal import conformal_interval
from mile.fitting.result import Fit
from mile.fitting.unseen import show as show_estimate
from mile.report import render
from mile.samplers import title_of
from mile.storage import csv_lines, inside, run_seconds, write_page, write_table

_FLATTERING = "The validation rows also decided when training stopped, so their scores are slightly flattering."
_NO_ROWS = "The run keeps no validation rows (it has fewer than 20 rows, or no data): give test rows with --data."


def predict(
    console: Console,
    model: Path,
    data: DataFile,
    out: Path | None,
    interval: float,
    quantiles: str | None,
    keep: str | None = None,
    keep_formulas: bool = False,
    conformal: bool = False,
    times: str | None = None,
) -> None:
    """Predict every row of a table."""
    if not 0.0 < interval < 1.0:
        raise ValueError(f"--interval must lie strictly between 0 and 1; got {interval:g}.")
    levels, wanted = _levels(quantiles), _times(times)
    loaded = load_model(model)
    rows, kept = _features(loaded, data, keep)
    predictive = fitted(loaded).for_encoded.predictive(rows)
    columns = predictive.columns(interval, levels) | (predictive.survival_columns(wanted) if wanted else {})
    if conformal:
        ends = conformal_interval(fitted(loaded).for_encoded, rows, interval).T
        columns |= {f"{end}_{100 * interval:g}": column for end, column in zip(("lower", "upper"), ends, strict=True)}
    columns = {name: cells for name, cells in kept.items() if name not in columns} | columns
    if out is None:
        for line in csv_lines(columns, keep_formulas=keep_formulas):
            console.row(line)
    else:
        write_table(out, columns, keep_formulas=keep_formulas)
        console.say(f"{len(predictive):,} rows predicted: {out}")


def evaluate(console: Console, model: Path, data: DataFile, target: str | None) -> None:
    """Score a model on rows whose outcome is known."""
    loaded = load_model(model)
    x, y = read_rows(loaded, data, target)
    scores = scores_beside_ensemble(fitted(loaded).for_encoded, x, y)
    console.say(f"{data}: {len(y):,} rows.\n{score_table(scores)}")
    console.answer({"rows": len(y)} | scores)


def report(console: Console, model: Path, data: DataFile | None, target: str | None, out: Path | None) -> None:
    """Write the page about a model."""
    loaded, began = load_model(model), time.perf_counter()
    is_run, notes = model.is_dir(), []
    fit, numbers, explanation = fitted(loaded), None, None
    if data is not None:
        x, y = read_rows(loaded, data, target)
        explanation = _explained(loaded, data, target, x, y)
        fit, rows = fit.for_encoded, f"{len(y):,} rows of {data.name}"
    else:
        x, y, numbers = (read_validation(model, fit) if is_run else None) or (None, None, None)
        fit, rows = fit.for_encoded, "" if y is None else f"{len(y):,} validation rows"
        without = [] if fit.out_of_fold is not None else [_NO_ROWS]
        notes += ([_FLATTERING] if rows else without) if is_run else []
    page = out or (inside(model, "report.html") if is_run else model.with_suffix(".html"))
    seconds = _seconds(model, notes)
    write_report(
        loaded,
        page,
        x,
        y,
        fit=fit,
        title=model.name,
        rows=rows,
        numbers=numbers,
        seconds=seconds,
        notes=notes,
        explanation=explanation,
        training=read_training(model, fit) if is_run else None,
    )
    console.say(f"Report  {page}")
    console.answer({"report": str(page), "rows": rows, "seconds": time.perf_counter() - began})


def export(
    console: Console, model: Path, file: Path | None, out: Path | None, quantiles: str | None, half: bool
) -> None:
    """Write a file for other programs."""
    if file is not None and out is not None:
        raise ValueError("the file to write must be given once: as FILE or by --out.")
    path = file or out or model.with_suffix(".nc")
    loaded = load_model(model)
    options = ({"quantiles": _levels(quantiles)} if quantiles is not None else {}) | ({"half": True} if half else {})
    export_fit(fitted(loaded), path, feature_names(loaded), **options)
    console.say(f"Wrote  {path}")
    console.answer({"file": str(path)})


def load_model(path: Path) -> Model:
    """Load a run or a model file; the error says what to do if that fails."""
    if not path.exists():
        raise FileNotFoundError(f"There is no run or model {path}.")
    try:
        return load(path)
    except CorruptFileError as error:
        if not path.is_dir() or "repair" in str(error):
            raise
        raise CorruptFileError(f"{error} `mile repair {path}` may help.") from error


def target_name(model: Model) -> str | None:
    """Return the name of the column that a model predicts, if it knows it."""
    return getattr(model, "target_name_", None)


def _features(model: Model, data: DataFile, keep: str | None) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Read the rows to predict and encode them; return also the columns to copy beside their predictions."""
    encoder = fitted(model).encoder
    if takes_images(model):
        return encode_rows(encoder, read_images(model, data, None)[0]), {}
    table = data.table
    kept = kept_columns(model, table, keep)
    if takes_texts(model):
        return encode_rows(encoder, read_texts(model, data, target_name(model), known=False)[0]), kept
    return encode_rows(encoder, features_for(model, table, target_name(model))), kept


def takes_images(model: Model) -> bool:
    """Say whether a model was fitted to images."""
    return len(fitted(model).network.input_shape) > 1


def read_rows(model: Model, data: DataFile, target: str | None) -> tuple[np.ndarray, np.ndarray]:
    """Read the encoded features and the observed response from a table, from texts or from images."""
    encoder = fitted(model).encoder
    if takes_texts(model):
        texts, labels = read_texts(model, data, target or target_name(model), known=True)
        return encode_rows(encoder, texts), np.asarray(labels)
    if takes_images(model):
        x, y = read_images(model, data, target)
        if y is None:
            raise ValueError(f"{data} has images, but nothing is known of them: name the array with --target.")
        return encode_rows(encoder, x), y
    name = target or target_name(model)
    if name is None:
        raise ValueError("The model does not know its target's name: give --target.")
    rows = drop_unknown(data.table, name)
    return encode_rows(encoder, features_for(model, rows, name)), response_for(model, rows, name)


def scores_beside_ensemble(model: Model, x: np.ndarray, y: np.ndarray) -> dict[str, dict[str, float]]:
    """Return the scores of the deep ensemble and of all draws, on the scale of y and with y standardized."""
    fit = fitted(model)
    found = {
        "deep_ensemble": metrics.scores(fit.ensemble_predictive(x), y),
        fit.sampler.name: metrics.scores(fit.predictive(x), y),
    }
    scale = fit.response.unit
    if scale != 1.0:
        found |= {f"{name}_standardized": metrics.standardized(scores, scale) for name, scores in found.items()}
    return found


def score_table(scores: dict[str, dict[str, float]]) -> str:
    """Return scores as a table for people."""
    shown = {name: values for name, values in scores.items() if not name.endswith("_standardized")}
    rows = []
    for name in next(iter(shown.values())):
        score = metrics.SCORES[name]
        if score.best is not None:
            rows.append((score.label, *(f"{values[name]:.0%}" for values in shown.values())))
            continue
        remark = f" ({score.better} is better)" if score.better else ""
        rows.append((score.label + remark, *(figure(values[name]) for values in shown.values())))
    return table(("", *(title_of(name) for name in shown)), rows)


def out_of_fold_table(fit: Fit) -> str:
    """Return the scores of left-out rows, with their standard errors, as a table for people."""
    found = fit.out_of_fold
    assert found is not None
    beside = found.scores_of_ensemble
    rows = [
        (metrics.SCORES[name].label, show_estimate(name, beside[name]), show_estimate(name, estimate))
        for name, estimate in found.scores.items()
    ]
    return table(("± one standard error", title_of("deep_ensemble"), title_of(fit.sampler.name)), rows)


def out_of_fold_answer(fit: Fit) -> dict[str, object]:
    """Return the same for JSON."""
    found = fit.out_of_fold
    assert found is not None
    named = {"deep_ensemble": found.scores_of_ensemble, fit.sampler.name: found.scores}
    answer: dict[str, object] = {"rows": len(found), "folds": found.n_folds}
    for method, scores in named.items():
        answer[method] = {name: estimate._asdict() for name, estimate in scores.items()}
    return answer


def write_report(
    model: Model,
    page: Path,
    x: np.ndarray | None,
    y: np.ndarray | None,
    *,
    title: str,
    rows: str,
    fit: Fit | None = None,
    numbers: np.ndarray | None = None,
    seconds: float | None = None,
    notes: Sequence[str] = (),
    explanation: Explanation | None = None,
    training: tuple[np.ndarray, np.ndarray] | None = None,
) -> None:
    """Render the page and write it; `fit` is given where x is encoded already."""
    encoder, n_inputs = fitted(model).encoder, fitted(model).network.n_inputs
    text = render(
        fit or fitted(model),
        x,
        y,
        title=title,
        rows=rows,
        feature_names=encoder.names(feature_names(model), n_inputs),
        target=target_name(model),
        seconds=seconds,
        notes=[*choice_lines(model), *notes],
        numbers=numbers,
        columns=encoder.describe(),
        explanation=explanation,
        training=training if encoder.origins(n_inputs) is not None else None,
        reproduce="" if isinstance(model, Fit) else model.reproducing_line(),
    )
    write_page(page, text)


def choice_lines(model: Model) -> list[str]:
    """Return what likelihood="auto" chose and why; nothing if it was not asked."""
    choice = None if isinstance(model, Fit) else model.likelihood_choice_
    return [] if choice is None else choice.lines


def _explained(model: Model, data: DataFile, target: str | None, x: np.ndarray, y: np.ndarray) -> Explanation | None:
    """Say which columns of a table matter; None for images and texts."""
    fit, name = fitted(model), target or target_name(model)
    if name is None or fit.network.describe_rows() is not None or fit.encoder.origins(x.shape[1]) is None:
        return None
    features = features_for(model, drop_unknown(data.table, name), name)
    return explain_briefly(
        fit, column_table(fit.encoder, x, features, fit.encoder.column_names(feature_names(model))), y
    )


def _seconds(model: Path, notes: list[str]) -> float | None:
    """Return how long a run took, and note how that is known: a finished one holds no times of its own."""
    if not model.is_dir():
        return None
    notes.append("The time is that from the run's first file to its last, pauses included.")
    return run_seconds(model)


def _times(text: str | None) -> list[float]:
    try:
        return [float(part) for part in (text or "").split(",") if part.strip()]
    except ValueError:
        raise ValueError(f"--times must be numbers, such as 365,730; got {text!r}.") from None


def _levels(text: str | None) -> list[float]:
    levels = []
    with contextlib.suppress(ValueError):
        levels = [float(part) for part in (text or "").split(",") if part.strip()]
    if (text and not levels) or not all(0.0 < level < 1.0 for level in levels):
        raise ValueError(f"--quantiles must be levels strictly between 0 and 1, such as 0.05,0.5,0.95; got {text!r}.")
    return levels
