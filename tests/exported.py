"""Random fitted models on random tables, and what an exported graph says of the same rows."""

import datetime
from dataclasses import replace

import numpy as np
import onnxruntime
from models import made_fit

from mile import MLP, Categorical, Gaussian, MileClassifier, MileRegressor
from mile.features.numbers import Standardizer
from mile.features.piecewise import Piecewise
from mile.features.table import TableEncoder
from mile.likelihoods import LabeledResponse, ScaledResponse

ACTIVATIONS = ("relu", "tanh", "gelu", "silu", "sigmoid")
CITIES = ("Oslo", "Rome", "São Paulo", "北京", "Lima", "Quito", " Bern")
N_ROWS = 60


def random_table(rng, n_rows=N_ROWS):
    """Return columns of every kind, with cells missing in some, and the response to take means of."""
    numbers = (rng.standard_normal(n_rows) * 10.0 ** rng.integers(-3, 4)).astype(np.float32)
    gaps = rng.lognormal(size=n_rows).astype(np.float32)
    gaps[rng.random(n_rows) < 0.2] = np.nan
    start = datetime.datetime(1890, 1, 1)
    dates = [start + datetime.timedelta(minutes=int(rng.integers(0, 80_000_000))) for _ in range(n_rows)]
    return {
        "plain": numbers,
        "with gaps": gaps,
        "mean": rng.integers(0, 5, n_rows).astype(np.float32),  # an output of graphs has this name, too
        "city": rng.choice(CITIES, n_rows, p=[0.4, 0.3, 0.2, 0.04, 0.03, 0.02, 0.01]).tolist(),
        "code": [f"c{place}" if rng.random() > 0.1 else None for place in rng.integers(0, 40, n_rows)],
        "sold": [("yes", "No", "NO", "")[place] for place in rng.integers(0, 4, n_rows)],
        "since": [None if rng.random() < 0.1 else date for date in dates],
        "constant": [1.0] * n_rows,
    }


def random_model(seed):
    """Return a model of random draws, and new rows to predict: an array in every third, else a table."""
    rng = np.random.default_rng(seed)
    y = rng.standard_normal(N_ROWS) * 7 + 3
    if seed % 3 == 0:
        x = (rng.standard_normal((N_ROWS, 4)) * [1, 10, 100, 0.1] + [0, 5, 50, 0]).astype(np.float32)
        encoder = (Piecewise(pieces=3) if seed % 2 else Standardizer()).fit(x)
        rows = x[:20] * 1.5
        rows[rng.random(rows.shape) < 0.1] = np.nan
    else:
        encoder = TableEncoder(
            squash="smooth" if seed % 2 else "none",
            most_levels=int(rng.choice([3, 30])),
            fewest_rows=2,
            pieces=int(rng.choice([0, 3])),
        )
        encoder = encoder.fit(random_table(rng), y=y)
        rows = random_table(rng, 20)
        rows["city"][:2] = ["Atlantis", "NA"]
        rows["sold"][:3] = ["TRUE", "maybe", "n"]
    is_of_classes = seed % 2 == 0
    labels = np.array([["a", "b", "ü"], [3, 1, 2], [0.5, 1.5, 2.5]][seed % 3 if seed % 4 else 0])
    likelihood = (
        Categorical(3) if is_of_classes else Gaussian(link="bounded", floor=0.01) if seed % 4 == 1 else Gaussian()
    )
    network = MLP(
        n_inputs=getattr(encoder, "n_features", 4),
        hidden=tuple(rng.integers(2, 7, rng.integers(1, 4)).tolist()),
        n_outputs=likelihood.n_outputs,
        activation=ACTIVATIONS[seed % 5],
    )
    scale = 1 / np.sqrt(network.n_inputs)
    draws = (rng.standard_normal((2, 16, network.dimension)) * scale).astype(np.float32)
    made = made_fit()
    fit = replace(
        made,
        network=network,
        likelihood=likelihood,
        encoder=encoder,
        response=LabeledResponse(3, labels)
        if is_of_classes
        else ScaledResponse(Standardizer(shift=np.array(y.mean()), scale=np.array(y.std()))),
        chains=made.chains._replace(draws=draws),
        members=made.members._replace(positions=draws[:, 0] * 1.1),
        weights=np.array([0.5, 0.3, 0.2, 0.0]) if seed % 5 == 0 else None,
    )
    model = (MileClassifier if is_of_classes else MileRegressor)()
    model.fit_, model.n_features_in_ = fit, 4 if seed % 3 == 0 else len(rows)
    if seed % 3:
        model.feature_names_in_ = np.array(list(rows), object)
    return model, rows


def graph_of(path):
    """Return an exported graph as a function of rows that gives its outputs by name."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]

    def run(rows):
        feeds = {
            given.name: rows if given.name == "X" else cells_of(rows[given.name.removesuffix(" (input)")], given.type)
            for given in session.get_inputs()
        }
        return dict(zip(names, session.run(None, feeds), strict=True))

    return run


def cells_of(cells, kind):
    """Return a column as an input takes it: numbers in float32, dates in microseconds, or texts."""
    if kind == "tensor(int64)":
        found = np.array(cells, "M8[us]").astype(np.int64)
    elif kind == "tensor(float)":
        found = np.array(cells, np.float32)
    else:
        found = np.array(["" if cell is None else cell.strip() for cell in cells], object)
    return found.reshape(-1, 1)


def disagreement(found, predictive, levels=()):
    """Return the largest difference from the model's own predictions: relative, of quantiles to the deviation too."""
    if hasattr(predictive, "probs"):
        assert np.array_equal(found["label"], predictive.labels)
        pairs = [(found[name], getattr(predictive, name)) for name in ("entropy", "mutual_information")]
        differences = [np.abs(a - b) for a, b in pairs]
        return max(np.max(np.abs(found["probabilities"] / predictive.probs - 1.0)), *map(np.max, differences))
    wanted = {name: getattr(predictive, name) for name in ("mean", "std", "aleatoric_std", "epistemic_std")}
    wanted |= {f"q{level:g}": predictive.quantile(level) for level in levels}
    assert set(wanted) == set(found)
    scale = {name: np.abs(value) + (0 if "std" in name else predictive.std) for name, value in wanted.items()}
    return max(np.max(np.abs(found[name] - wanted[name]) / scale[name]) for name in wanted)
