"""What a page says in words and plain tables: the summary, chains, groups, a glossary, the configuration."""

import importlib.metadata
import json
from collections.abc import Sequence
from typing import cast

import jax
import numpy as np

from mile import native
from mile._errors import Status
from mile._printable import one_line
from mile._progress import duration
from mile.configuration import describe
from mile.diagnose.diagnosis import Diagnosis
from mile.features.base import ColumnReport
from mile.fitting.result import Fit
from mile.report._rows import ObservedRows
from mile.report._scores import Assessment, Cells, crps_rows, number

_MOST_NAMES = 12
_LONGEST_NAME = 60  # characters
_LONGEST_TREATMENT = 160
_MOST_COLUMNS = 300  # of a table, listed one by one
_PARTS = ("network", "likelihood", "prior", "training", "sampler", "temperature")


def feature_names(fit: Fit, names: Sequence[str] | None) -> list[str]:
    """Return a name for each feature, short enough for a table.

    Raises
    ------
    ValueError
        If there are not as many names as features.
    """
    n_inputs = fit.network.n_inputs
    found = fit.encoder.names(names, n_inputs)
    if len(found) != n_inputs:
        raise ValueError(f"feature_names must have {n_inputs} entries; got {len(found)}.")
    return [one_line(text, _LONGEST_NAME) for text in found]


def summary(fit: Fit, target: str | None, names: list[str], seconds: float | None) -> str:
    """Say in a paragraph what was fitted, how, and what it cost."""
    n_chains, n_good, n_draws = len(fit.status), int((fit.chain_weights > 0.0).sum()), fit.chains.logdensity.shape[1]
    n_networks = n_good * n_draws + int((fit.member_weights > 0.0).sum())
    gradients = int(np.sum(np.asarray(fit.chains.gradient_evaluations, np.int64)))
    parts = [_what(fit, target, names)]
    if fit.sampler.gradient_evaluations():
        parts += [
            f"One chain sampled the weights around each network. {n_good} of {n_chains} chains are used, "
            f"{n_draws:,} draw{'' if n_draws == 1 else 's'} each: {n_networks:,} networks predict together."
            f"{_weights(fit)}",
            f"That took {gradients:,} gradient evaluations{f' and {duration(seconds)} in all' if seconds else ''}.",
        ]
    else:
        parts += [f"{n_good} of {n_chains} networks predict together, without sampling."]
        parts += [] if seconds is None else [f"That took {duration(seconds)} in all."]
    versions = ", ".join(f"{name} {importlib.metadata.version(package)}" for name, package in _PACKAGES.items())
    return " ".join([*parts, f"Seed {fit.seed}; {versions}; computed by {_processor(fit)}."])


def _weights(fit: Fit) -> str:
    """Say how much the chains count, if not all the same, and name those that do not count."""
    if fit.weights is None:
        return ""
    of_chains, of_members = fit.chain_weights[fit.ok], float(fit.member_weights.sum())
    text = f" Their weights lie between {of_chains.min():.1%} and {of_chains.max():.1%}"
    if of_members > 0.0:
        text += f"; the networks that they start from have {of_members:.1%} together"
    without = np.asarray(fit.chain_ids)[fit.ok & (fit.chain_weights == 0.0)]
    if without.size:
        text += f"; without a weight: chain{'' if without.size == 1 else 's'} {', '.join(map(str, without))}"
    return f"{text}."


_PACKAGES = {"mile": "mile-bnn", "jax": "jax"}


def _what(fit: Fit, target: str | None, names: list[str]) -> str:
    layers = fit.network.describe_layers()
    inside = f", {layers}" if layers else ""
    aim = fit.likelihood.aim(target or "y")
    features = fit.network.describe_rows() or f"{len(names):,} feature{'' if len(names) == 1 else 's'}"
    shown = ", ".join([*names[:_MOST_NAMES], *(["…"] if len(names) > _MOST_NAMES else [])])
    known = "" if names[0] == "feature 0" else f" ({shown})"
    size = f"{fit.network.dimension:,} weights"
    several = f"{len(fit.status)} networks{inside}, {size} each, were"
    subject = several if len(fit.status) > 1 else f"1 network{inside}, {size}, was"
    return f"{subject} trained to predict {aim} from {features}{known}."


def _processor(fit: Fit) -> str:
    on_cpu = jax.default_backend() == "cpu"
    dtype = fit.chains.draws.dtype
    kernel = on_cpu and (native.specify(fit.network, fit.likelihood, dtype) or native.accelerates(fit.network, dtype))
    return f"{native.kernel_name() if kernel else 'XLA'} on {jax.default_backend().upper()}"


def describe_rows(rows: ObservedRows, what: str) -> str:
    """Say which rows the scores are of."""
    n_used = len(rows.numbers)
    known = what if what[:1].isdigit() else f"{n_used:,} {what}"
    if n_used < rows.n_given - rows.n_unusable:
        kind = what.lstrip("0123456789, ")
        return f"{n_used:,} rows, evenly chosen from {rows.n_given:,} {kind}, to keep this page quick"
    return known


def about_scores(fit: Fit, rows: ObservedRows, assessment: Assessment) -> str:
    """Say what was left out of the scores to keep the page quick, if anything was."""
    n_crps = crps_rows(fit, rows)
    few = n_crps < len(rows.x) and "crps" in assessment.mile.score_names
    return f"CRPS is of {n_crps:,} of the rows, evenly chosen." if few else ""


def without_rows(rows: ObservedRows | None) -> str:
    """Say why there are no scores."""
    if rows is None:
        return "No observed rows were given, so this page has diagnostics of the chains only."
    return "No observed values were given, so this page has diagnostics of the chains only."


OUT_OF_FOLD = (
    "Each row is predicted by chains that never saw it, neither in sampling nor in stopping; after ± is a standard "
    "error. Figures need test rows."
)


def group_table(diagnosis: Diagnosis) -> Cells:
    """Return what was found layer by layer and for predictions."""
    columns = {
        "quantities": "quantities",
        "ess_per_chain": "ESS of a chain",
        "smallest_ess_per_chain": "smallest ESS",
        "chainwise_rhat": "chainwise R-hat",
        "largest_chainwise_rhat": "largest R-hat",
        "pooled_ess": "ESS of all",
        "pooled_rhat": "R-hat of all",
        "between_variance": "variance between",
        "within_variance": "variance within",
        "virial": "virial",
    }
    rows = [[row["group"], *(_cell(cast(float | None, row[name])) for name in columns)] for row in diagnosis.table()]
    return {"columns": ["group", *columns.values()], "rows": rows}


def chain_table(diagnosis: Diagnosis) -> Cells:
    """Return how each chain fared."""
    columns = ["chain", "outcome", "epochs", "step size", "L", "travel / L", "bad steps"]
    columns += ["energy variance", "energy tail", "virial"]
    rows = []
    for chain in diagnosis.chains:
        outcome = chain.status.sentence + (", a replacement" if chain.replaced else "")
        numbers = (chain.epochs, chain.step_size, chain.L, chain.travel, chain.bad_steps)
        rest = (chain.energy_variance, chain.energy_tail, chain.virial)
        cells = [str(chain.chain), outcome, *(_cell(value) for value in (*numbers, *rest))]
        rows.append({"cells": cells, "failed": chain.status != Status.OK})
    return {"columns": columns, "rows": rows}


def column_table(columns: Sequence[ColumnReport]) -> Cells | None:
    """Return what each column of a table was taken for and what became of it; None if there are none."""
    if not columns:
        return None
    rows = [
        [
            one_line(column.name, _LONGEST_NAME),
            column.kind,
            one_line(column.values, _LONGEST_NAME),
            f"{column.missing:.1%}" if column.missing else "none",
            one_line(f"{column.treatment}: {column.reason}" if column.reason else column.treatment, _LONGEST_TREATMENT),
        ]
        for column in columns[:_MOST_COLUMNS]
    ]
    header = ["column", "kind", "range or levels", "missing", "what was done"]
    n_more = len(columns) - _MOST_COLUMNS
    return {"columns": header, "rows": rows, "more": f"And {n_more:,} more columns." if n_more > 0 else ""}


def _cell(value: float | None) -> str:
    if value is None:
        return "–"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.3g}" if abs(value) < 1000 else number(value)


def configuration(fit: Fit) -> str:
    """Return everything that decides the result besides the data, as JSON."""
    parts = {name: describe(getattr(fit, name)) for name in _PARTS}
    return json.dumps(parts | {"n_chains": len(fit.status), "seed": fit.seed}, indent=2, ensure_ascii=False)


GLOSSARY = {
    "importance": "How much lower the LPPD of these rows is when one column is shuffled among them. Two columns "
    "that say the same share what they are worth.",
    "effect": "How predictions change along one column, with the others as they occur (accumulated local effects).",
    "single member, deep ensemble": "The trained networks that the chains start from: one by one, scores averaged, and "
    "together.",
    "single chain": "The draws of one chain alone; the scores are means over at most four chains.",
    "the last column": "All kept draws of all good chains, predicting together, each chain by its weight.",
    "after ±": "Standard error: how far the score would move with other rows of the same kind, typically.",
    "LPPD": "Log pointwise predictive density: the mean over rows of the log density that the prediction gave to what "
    "was observed. It rewards being right and knowing how sure to be. A difference of 0.1 is worth noticing.",
    "RMSE": "Root mean squared error of the predicted means, in the unit of the target.",
    "CRPS": "Continuous ranked probability score: an absolute error for whole distributions, in the target's unit.",
    "coverage and calibration error": "The share of rows inside central intervals, and the root mean square of its "
    "distance to what the intervals promise, at 50, 75, 90 and 95 %.",
    "interval score": "Width of the interval plus a penalty for what lies outside.",
    "Brier score and expected calibration error": "For classes: the squared distance of probabilities to the truth, "
    "and the distance between confidence and accuracy.",
    "concordance": "Of all pairs of rows whose order is known, the share whose predicted medians have that order.",
    "integrated Brier score": "The squared error of survival probabilities, averaged over time; other rows make up for "
    "those that were lost from sight.",
    "PIT": "The predicted probability of a value below the observed one. If predictions are right it is uniform.",
    "ESS": "Effective sample size: how many independent draws would be worth as much.",
    "chainwise R-hat": "Compares quarters of one chain. Above 1.1 the chain still drifts. R-hat of all chains is "
    "usually large for weights, because different weights can be the same function.",
    "virial ratio": "Compares how far a weight moves with the force on it; 1 in equilibrium.",
    "energy variance": "Squared energy error of a step per weight: the price of large steps. Energy tail: its 99.9 % "
    "quantile.",
    "L and travel": "The distance after which a chain forgets its direction, and the length of its path in that unit.",
    "bad steps": "Steps that were not finite and were undone.",
}
