"""A likelihood and an encoder of one's own, in forty lines, go through everything that the built-in ones do."""

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
import runs
from scipy import stats
from typer.testing import CliRunner

import mile
from mile import MileRegressor, UntrustedFileError, _registry
from mile.cli import app
from mile.features.base import AbstractFeatureEncoder
from mile.likelihoods import AbstractComponents, AbstractNumberLikelihood
from mile.likelihoods.weights import DrawWeights

SMALL = {
    "hidden_layer_sizes": (4,),
    "n_chains": 2,
    "warmup_steps": 200,
    "sampling_steps": 100,
    "n_draws": 20,
    "max_epochs": 30,
    "learning_rate": 0.01,
    "random_state": 1,
}


@dataclass(frozen=True, eq=False)
class LaplaceComponents(AbstractComponents):
    location: np.ndarray
    scale: np.ndarray

    mean = property(lambda self: self.location)
    std = property(lambda self: np.sqrt(2.0) * self.scale)

    def log_prob(self, y):
        return stats.laplace.logpdf(y, self.location, self.scale)

    def cdf(self, y):
        return stats.laplace.cdf(y, self.location, self.scale)

    def quantile(self, level):
        return stats.laplace.ppf(level, self.location, self.scale)

    def sample(self, rng):
        return rng.laplace(self.location, self.scale)


@_registry.likelihood("toy_laplace")
@dataclass(frozen=True)
class ToyLaplace(AbstractNumberLikelihood):
    n_outputs = 2

    def log_prob(self, outputs, y):
        return -jnp.abs(y - outputs[0]) * jnp.exp(-outputs[1]) - outputs[1] - jnp.log(2.0)

    def components(self, outputs):
        location, log_scale = np.moveaxis(outputs.astype(np.float64), 1, 0)
        return LaplaceComponents(location, np.exp(log_scale))


@_registry.encoder("toy_ranks")
@dataclass(frozen=True, eq=False)
class ToyRanks(AbstractFeatureEncoder):
    """The rank of a value among the training rows, and its sign: twice as many features as columns."""

    known: np.ndarray | None = None

    def fit(self, x, rows=None, weight=None):
        return ToyRanks(np.sort(x if rows is None else x[rows], axis=0).astype(np.float64))

    def transform(self, x, rows=None):
        x = x if rows is None else x[rows]
        ranks = [np.searchsorted(column, x[:, place]) / len(column) for place, column in enumerate(self.known.T)]
        return np.hstack([np.stack(ranks, axis=1), np.sign(x)]).astype(np.float32)

    def tensors(self):
        return {"known": self.known}

    @classmethod
    def restore(cls, tensors: Mapping, settings: Mapping, n_features: int):
        return cls(tensors["known"])

    def names(self, given, n_features):
        columns = given or [f"x{place}" for place in range(n_features // 2)]
        return [f"{what} of {name}" for what in ("rank", "sign") for name in columns]


SOURCE = Path(mile.__file__).parent
KINDS = {"Gaussian", "Categorical", "Predictive", "ClassPredictive", "ScaledResponse", "LabeledResponse"}
KINDS |= {"AbstractNumberLikelihood", "NormalComponents"}
TASKS = {"regression", "classification", "gaussian", "categorical"}


def branches_on_the_response(path):
    """Lines that ask which likelihood it is, or whether y is a number or a class."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
        words = {
            part.value for part in ast.walk(node) if isinstance(part, ast.Constant) and isinstance(part.value, str)
        }
        asks = isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("isinstance", "issubclass")
        compares = isinstance(node, ast.Compare) and (names & {"type"} or words & TASKS)
        if (asks and names & KINDS) or (compares and (names & KINDS or words & TASKS)):
            found.append(f"{path.relative_to(SOURCE)}:{node.lineno}")
    return found


def test_nobody_outside_the_likelihoods_asks_which_one_it_is():
    files = [path for path in SOURCE.rglob("*.py") if "likelihoods" not in path.parts]
    assert [place for path in files for place in branches_on_the_response(path)] == []


def test_the_count_of_branches_would_notice_one(tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), "SOURCE", tmp_path)
    for line in ("isinstance(a, Gaussian)", "type(a) is Categorical", "a.task == 'regression'"):
        (tmp_path / "module.py").write_text(line)
        assert branches_on_the_response(tmp_path / "module.py") == ["module.py:1"]


def table(n_rows=60):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((n_rows, 3))
    return x, 3.0 * x[:, 0] + rng.laplace(size=n_rows) + 10.0


@pytest.fixture(scope="module")
def model():
    return MileRegressor(likelihood="toy_laplace", encoder=ToyRanks(), **SMALL).fit(*table())


def test_predictions_are_those_of_the_mixture_of_laplace_distributions(model):
    x, y = table()
    x, y = x[:7], y[:7]
    predictive, fit = model.predictive(x), model.fit_
    draws = fit.chains.draws.reshape(-1, fit.network.dimension)
    outputs = np.stack([fit.network.apply(draw, fit.encoder.transform(x).T) for draw in draws]).astype(np.float64)
    location = 1.0 * fit.response.decode(outputs[:, 0])
    mixture = stats.laplace(location, fit.response.unit * np.exp(outputs[:, 1]))
    np.testing.assert_allclose(predictive.mean, location.mean(axis=0), rtol=1e-4)
    np.testing.assert_allclose(predictive.log_prob(y), np.log(mixture.pdf(y).mean(axis=0)), rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(predictive.cdf(y), mixture.cdf(y).mean(axis=0), atol=1e-4)
    for level in (0.001, 0.05, 0.5, 0.95, 0.999):
        np.testing.assert_allclose(predictive.cdf(predictive.quantile(level)), level, atol=1e-9)
    first, second = (predictive.sample(4_000, random_state=seed) for seed in (1, 2))
    by_samples = np.abs(first - y).mean(axis=0) - 0.5 * np.abs(first - second).mean(axis=0)
    np.testing.assert_allclose(predictive.crps(y), by_samples, rtol=0.15)


def test_one_laplace_distribution_has_the_crps_in_closed_form():
    class OneDraw:
        n_draws = 1
        weights = DrawWeights()

    components = LaplaceComponents(np.zeros((1, 7)), np.full((1, 7), 2.0))
    y = np.array([-200.0, -30.0, -1.0, 0.0, 0.5, 8.0, 300.0])  # the first and the last are beyond its tails
    z = np.abs(y) / 2.0
    exact = 2.0 * (z + np.exp(-z) - 0.75)
    np.testing.assert_allclose(components.crps(components.evaluator(OneDraw()), y), exact, rtol=1e-6)


def test_a_report_has_its_scores_figures_and_feature_names(model, tmp_path):
    model.report(tmp_path / "page.html", *table())
    page = (tmp_path / "page.html").read_text()
    assert "CRPS" in page
    assert "rank of x0" in page or "sign of x0" in page or "of x1" in page or "of x2" in page
    assert 'id="pit"' in page or "PIT" in page


def test_a_file_names_both_and_loads(model, tmp_path, monkeypatch):
    path = tmp_path / "model.mile"
    model.save(path)
    again, x = mile.load(path), table()[0]
    np.testing.assert_array_equal(again.predict_quantiles(x), model.predict_quantiles(x))
    for registry, name in ((_registry.likelihood, "toy_laplace"), (_registry.encoder, "toy_ranks")):
        with monkeypatch.context() as patch:
            patch.delitem(registry._classes, name)
            with pytest.raises(UntrustedFileError, match=f"{name}.*import"):
                mile.load(path)


def test_a_stopped_run_resumes_to_the_same_bits(model, tmp_path):
    folder, x = tmp_path / "toy.run", table()[0]
    stopped = MileRegressor(likelihood="toy_laplace", encoder="toy_ranks", run_dir=folder, **SMALL)
    with runs.interrupted("sampling", 1), pytest.raises(KeyboardInterrupt):
        stopped.fit(*table())
    resumed = mile.resume(folder)
    np.testing.assert_array_equal(resumed.predict(x), model.predict(x))


def test_the_command_line_fits_and_predicts_with_it(tmp_path):
    x, y = table()
    lines = [",".join(f"{value:.6f}" for value in row) for row in np.column_stack([x, y])]
    (tmp_path / "data.csv").write_text("\n".join(["a,b,c,price", *lines]))
    options = [
        "--chains",
        "2",
        "--warmup-steps",
        "100",
        "--sampling-steps",
        "50",
        "--draws",
        "10",
        "--hidden",
        "4",
        "--seed",
        "1",
    ]
    run, data = str(tmp_path / "cli.run"), str(tmp_path / "data.csv")
    fit = ["fit", data, "--target", "price", "--likelihood", "toy_laplace", "--out", run, *options]
    for arguments in (fit, ["predict", run, data, "--quantiles", "0.1,0.9"], ["report", run]):
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 0, result.output
    assert type(mile.load(run).fit_.likelihood) is ToyLaplace


def test_class_codes_beyond_the_classes_are_refused_by_row_and_value():
    network = mile.MLP(n_inputs=2, hidden=(2,))
    for code in (-1, 2, 4):
        data = mile.Dataset.from_arrays(np.zeros((5, 2)), np.array([0, 1, 0, code, 1]))
        with pytest.raises(ValueError, match=f"class code {code} in row 3"):
            mile.fit(data, network, mile.Categorical(2))
    with pytest.raises(ValueError, match="floating-point"):
        mile.fit(data, network, mile.Gaussian())
