"""StableHLO programs and netCDF files: what they hold is what the model predicts and has drawn."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from models import made_estimator, made_fit

from mile import ConvNet
from mile.export import export_fit
from mile.networks.conv import Convolution


def run(path, features):
    program = jax.export.deserialize(bytearray(path.read_bytes()))
    return {name: np.asarray(value) for name, value in program.call(features).items()}


@pytest.mark.parametrize("classes", [None, ("a", "b", "c")])
def test_a_program_equals_its_model(classes, tmp_path):
    model, path = made_estimator(classes), tmp_path / "model.stablehlo"
    model.fit_ = replace(model.fit_, weights=np.array([0.5, 0.2, 0.3, 0.0]))
    model.export(path)
    x = np.random.default_rng(0).standard_normal((7, 3))
    found, predictive = run(path, model.fit_.encoder.transform(x)), model.predictive(x)
    if classes is not None:
        np.testing.assert_allclose(found["probabilities"], predictive.probs, rtol=1e-5)
        return
    assert set(found) == {"mean", "std", "aleatoric_std", "epistemic_std"}
    for name, values in found.items():
        np.testing.assert_allclose(values, getattr(predictive, name), rtol=1e-5, atol=1e-6)


def test_a_program_holds_any_network(tmp_path):
    made, path = made_fit(("a", "b")), tmp_path / "model.stablehlo"
    network = ConvNet(convolutions=(Convolution(filters=2, kernel=3),), hidden=(3,)).sized((8, 8, 1), 2)
    draws = np.random.default_rng(0).standard_normal((2, 3, network.dimension)).astype(np.float32)
    encoder = type(made.encoder).identity(64)
    export_fit(replace(made, network=network, encoder=encoder, chains=made.chains._replace(draws=draws)), path)
    probabilities = run(path, np.ones((3, 64), np.float32))["probabilities"]
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=1e-5)


def test_a_netcdf_file_holds_the_draws(tmp_path):
    xarray = pytest.importorskip("xarray")
    model = made_estimator()
    model.export(tmp_path / "draws.nc")
    with xarray.open_datatree(tmp_path / "draws.nc") as tree:
        np.testing.assert_array_equal(tree["posterior"]["weights"], model.fit_.chains.draws)
