"""What simpler models say of the same rows: a constant, and one linear in the features, each with the same likelihood.

A linear model is a network without hidden layers, so that whatever is predicted (numbers, classes, counts, times) has
its own: a ridge regression whose noise may change too, a logistic regression, a regression of counts or of times.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from mile import metrics
from mile._compilation import use_compilation_cache
from mile.fitting.result import Fit
from mile.fitting.unseen import Estimate, show, summarize
from mile.likelihoods import AbstractLikelihood
from mile.networks import MLP
from mile.plot._style import even_choice
from mile.predict import predict
from mile.report._scores import Assessment, Cells, title

_MOST_ROWS = 5_000  # that a linear model is fitted to: more would hardly change it
_MOST_WEIGHTS = 20_000
_FOLDS = 5
_BUCKET = 256  # row counts are rounded up to multiples, so that compiled code serves tables of about the same size
_STEPS = 200
CONSTANT, LINEAR = "constant", "linear model"


class Baselines(NamedTuple):
    """Scores of single rows by the simpler models, and how these came to their weights."""

    row_scores: dict[str, dict[str, np.ndarray]]  # by model and score
    words: str


def baselines(
    fit: Fit,
    x: Float[np.ndarray, "row feature"],
    y: np.ndarray,
    training: tuple[np.ndarray, np.ndarray] | None = None,
    fold: Int[np.ndarray, " row"] | None = None,
) -> Baselines | None:
    """Fit the simpler models and score rows that they have not seen; None if there is nothing to fit.

    Parameters
    ----------
    fit
        Whose likelihood and encoding of y to use.
    x, y
        Encoded rows to score, and what was observed.
    training
        Encoded rows to fit to and what was observed of them. None: the same rows, each left out in turn with its fold.
    fold
        Of each row, where there is no training set; None makes five.
    """
    if len(y) < 2 * _FOLDS or (fit.network.n_inputs + 1) * fit.likelihood.n_outputs > _MOST_WEIGHTS:
        return None
    use_compilation_cache()
    if training is not None:
        usable = np.flatnonzero(fit.response.usable(training[1]))
        rows = usable[even_choice(len(usable), _MOST_ROWS)]
        known, weights = (training[0][rows], training[1][rows]), np.ones((1, len(rows)))
        scored = [np.arange(len(y))]
        words = f"fitted to {len(rows):,} training rows"
    else:
        fold = np.random.default_rng(0).permutation(len(y)) % _FOLDS if fold is None else fold
        known, folds = (x, y), np.unique(fold)
        weights = (fold != folds[:, None]).astype(float)
        scored = [np.flatnonzero(fold == one) for one in folds]
        words = f"fitted to these rows themselves, each predicted by a fit without its fold of {len(folds)}"
    network = MLP(n_inputs=fit.network.n_inputs, hidden=(), n_outputs=fit.likelihood.n_outputs)
    found: dict[str, dict[str, np.ndarray]] = {}
    for name, thetas in zip((CONSTANT, LINEAR), _fitted(fit, *known, weights), strict=True):
        of_rows: dict[str, np.ndarray] = {}
        for theta, chosen in zip(thetas, scored, strict=True):
            predictive = predict(network, fit.likelihood, theta[None], x[chosen], fit.response)
            with np.errstate(invalid="ignore", divide="ignore"):
                for score, values in predictive.row_scores(y[chosen]).items():
                    of_rows.setdefault(score, np.full(len(y), np.nan))[chosen] = values
        found[name] = of_rows
    return Baselines(found, words)


def comparison(fit: Fit, found: Baselines, mile: np.ndarray, ensemble: np.ndarray, others: "Others") -> Cells:
    """Return a table of the methods: LPPD, how far behind it is in pairs of rows, and a score that all know.

    Parameters
    ----------
    fit
        That is judged.
    found
        The simpler models.
    mile, ensemble
        Log densities of rows, by all draws and by the ensemble.
    others
        Their second score.
    """
    of_method = {name: scores["lppd"] for name, scores in found.row_scores.items()}
    summaries = {name: summarize(scores, np.ones(len(mile))) for name, scores in found.row_scores.items()}
    second = {name: summary.get(others.name) for name, summary in summaries.items()}
    of_method |= {"deep ensemble": ensemble} | ({} if ensemble is mile else {title(fit): mile})
    second |= {"deep ensemble": others.ensemble} | ({} if ensemble is mile else {title(fit): others.mile})
    ours = title(fit) if ensemble is not mile else "deep ensemble"
    rows = []
    for name, density in of_method.items():
        own, gain = _mean("lppd", density), mile - density
        cells = [own, "" if name == ours else _mean("lppd", gain)]
        if others.name:
            value = second[name]
            cells.append("–" if value is None else show(others.name, value))
        rows.append([name, *cells])
    label = metrics.SCORES[others.name].label if others.name else ""
    columns = ["", "LPPD", f"{ours} gains", *([label[0].upper() + label[1:]] if label else [])]
    return {"columns": columns, "rows": rows}


class Others(NamedTuple):
    """The second score of a table: its name, and what it is for all draws and for the ensemble."""

    name: str
    mile: Estimate | None = None
    ensemble: Estimate | None = None

    @classmethod
    def of_rows(cls, mile: dict[str, Estimate], ensemble: dict[str, Estimate]) -> "Others":
        """Return the first of the scores after the LPPD."""
        name = next((name for name in mile if name != "lppd"), "")
        return cls(name, mile.get(name), ensemble.get(name))

    @classmethod
    def of(cls, fit: Fit, assessment: Assessment) -> "Others":
        """Return that of an assessment."""
        mile, ensemble = (
            {name: Estimate(assessment.scores[method][name], error) for name, error in errors.items()}
            for method, errors in (
                (method, assessment.errors[method]) for method in ([*assessment.errors][-1], "deep ensemble")
            )
        )
        return cls.of_rows(mile, ensemble)


def _mean(name: str, values: np.ndarray) -> str:
    if not np.isfinite(values).all():
        return "–" if np.isnan(values).any() else "∞" if values.max() == np.inf else "−∞"
    return show(name, summarize({name: values}, np.ones(len(values)))[name])


def _fitted(fit: Fit, x: np.ndarray, y: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the most probable weights (model, fold, d) of the models under a standard normal prior, all at once."""
    from scipy.optimize import minimize

    encoded, n_rows = fit.response.encode(y), len(x)
    missing = -n_rows % _BUCKET
    rows = np.concatenate([x, np.repeat(x[-1:], missing, axis=0)]).astype(np.float32)
    outcomes = np.concatenate([encoded, np.repeat(encoded[-1:], missing, axis=0)])
    counted = np.pad(weights, ((0, 0), (0, missing))).astype(np.float32)
    data = tuple(map(jnp.asarray, (rows, outcomes, counted)))
    shape = (2, len(weights), (fit.network.n_inputs + 1) * fit.likelihood.n_outputs)

    def cost(theta: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = _loss(fit.likelihood, jnp.asarray(theta.reshape(shape), jnp.float32), *data)
        return float(value), np.asarray(gradient, np.float64).ravel()

    options = {"maxiter": _STEPS, "ftol": 1e-6}
    found = minimize(cost, np.zeros(np.prod(shape)), jac=True, method="L-BFGS-B", options=options)
    return found.x.reshape(shape).astype(np.float32)


@partial(jax.jit, static_argnums=0)
def _loss(
    likelihood: AbstractLikelihood, theta: Float[Array, "2 fold d"], x: Array, y: Array, weight: Array
) -> tuple[Array, Array]:
    """Return the sum of the mean losses with their ridges, and the gradient."""

    def of_fold(theta: Array, weight: Array, slopes: float) -> Array:
        layers = theta.reshape(x.shape[1] + 1, -1)
        outputs = (slopes * x @ layers[:-1] + layers[-1]).T
        of_rows = jnp.where(weight > 0.0, weight * likelihood.log_prob(outputs, y), 0.0)
        return (0.5 * jnp.sum(jnp.square(layers[:-1])) - jnp.sum(of_rows)) / jnp.sum(weight)

    def loss(theta: Array) -> Array:
        constant, linear = (
            jax.vmap(partial(of_fold, slopes=slopes))(one, weight)
            for one, slopes in zip(theta, (0.0, 1.0), strict=True)
        )
        return jnp.sum(constant) + jnp.sum(linear)

    return jax.value_and_grad(loss)(theta)
