"""ONNX files: the same predictions as the model, in few bytes, and refusals that say what a file cannot hold."""

import sys
import warnings
from dataclasses import replace

import numpy as np
import onnx
import pytest
from exported import disagreement, graph_of, random_model
from models import made_estimator, made_fit

from mile import MLP, ConvNet, Gaussian, Onnx
from mile.export import export_fit
from mile.networks.conv import Convolution

LEVELS = (0.05, 0.5, 0.99)


class Odd(Gaussian):
    """A likelihood of the user's own."""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.onnx"


def difference(seed, path):
    model, rows = random_model(seed)
    model.export(path, **({} if hasattr(model, "predict_proba") else {"quantiles": LEVELS}))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # there are cells that training did not have
        return disagreement(graph_of(path)(rows), model.predictive(rows), LEVELS)


# Numbers and classes, arrays with and without pieces, tables with both ways to scale numbers, weights of draws.
@pytest.mark.parametrize("seed", [0, 1, 2, 3, 5])
def test_a_graph_equals_its_model(seed, path):
    assert difference(seed, path) < 1e-5


@pytest.mark.slow
def test_graphs_equal_their_models_on_fifty_random_tables(path):
    assert max(difference(seed, path) for seed in range(100, 150)) < 1e-5


class TestInputsAndOutputs:
    def test_of_an_array_are_one_input_and_an_output_for_each_number(self, path):
        made_estimator(feature_names=["a", "b", "c"]).export(path, quantiles=[0.1, 0.9])
        graph = onnx.load(path).graph
        assert [(one.name, one.type.tensor_type.elem_type) for one in graph.input] == [("X", onnx.TensorProto.FLOAT)]
        names = ["mean", "std", "aleatoric_std", "epistemic_std", "q0.1", "q0.9"]
        assert [output.name for output in graph.output] == names
        properties = {prop.key: prop.value for prop in onnx.load(path).metadata_props}
        assert properties["features"] == '["a", "b", "c"]'
        found = graph_of(path)(np.zeros((5, 3), np.float32))
        assert {name: values.shape for name, values in found.items()} == dict.fromkeys(names, (5,))

    def test_of_a_table_are_an_input_for_each_column_that_is_used(self, path):
        random_model(1)[0].export(path)
        kinds = {one.name: one.type.tensor_type.elem_type for one in onnx.load(path).graph.input}
        number, text, date = onnx.TensorProto.FLOAT, onnx.TensorProto.STRING, onnx.TensorProto.INT64
        expected = {"plain": number, "with gaps": number, "mean (input)": number, "city": text, "code": text}
        assert kinds == expected | {"sold": text, "since": date}

    def test_half_takes_half_the_room_and_little_accuracy(self, path):
        model = made_estimator(n_draws=300)
        x = np.random.default_rng(0).standard_normal((20, 3)).astype(np.float32)
        sizes = []
        for half in (False, True):
            model.export(path, half=half)
            sizes.append(path.stat().st_size)
        assert sizes[1] < 0.6 * sizes[0]
        assert 1e-5 < disagreement(graph_of(path)(x), model.predictive(x), (0.05, 0.95)) < 1e-2

    def test_draws_of_failed_chains_are_left_out(self, path):
        made_estimator(failed={0: "sampling"}).export(path)
        assert np.isfinite(graph_of(path)(np.zeros((2, 3), np.float32))["mean"]).all()


def test_a_graph_of_128_draws_of_the_usual_network_is_small(path):
    network = MLP(n_inputs=50, hidden=(16, 16))
    made = made_fit()
    draws = np.zeros((2, 64, network.dimension), np.float32)
    encoder = type(made.encoder).identity(50)
    export_fit(replace(made, network=network, encoder=encoder, chains=made.chains._replace(draws=draws)), path)
    assert path.stat().st_size < 1_500_000


class TestRefusals:
    def test_name_what_a_graph_cannot_hold(self, path):
        made = made_fit()
        with pytest.raises(ValueError, match=r"likelihood Odd.* Gaussian and Categorical"):
            export_fit(replace(made, likelihood=Odd()), path)
        image = ConvNet(convolutions=(Convolution(filters=2, kernel=3),), hidden=(3,)).sized((8, 8, 1), 2)
        fit = replace(made, network=image, encoder=type(made.encoder).identity(64))
        fit = replace(fit, chains=made.chains._replace(draws=np.zeros((2, 6, image.dimension), np.float32)))
        with pytest.raises(ValueError, match=r"a ConvNet: .* \.stablehlo file holds every network"):
            export_fit(fit, path)
        assert not path.exists()

    def test_name_a_wrong_suffix_or_option(self, tmp_path):
        model = made_estimator()
        with pytest.raises(ValueError, match=r"must end in one of \.nc, \.onnx, \.stablehlo; got 'model.pkl'"):
            model.export(tmp_path / "model.pkl")
        with pytest.raises(ValueError, match=r"a \.onnx file has no option 'levels'; it has only quantiles, half"):
            model.export(tmp_path / "model.onnx", levels=[0.5])
        with pytest.raises(ValueError, match=r"a \.nc file has no option 'half'; it has none"):
            model.export(tmp_path / "model.nc", half=True)

    @pytest.mark.parametrize("levels", [(0.0,), (0.5, 0.5), (np.nan,)])
    def test_name_wrong_levels(self, levels):
        with pytest.raises(ValueError, match="different levels strictly between 0 and 1"):
            Onnx(quantiles=levels)

    def test_say_which_extra_is_missing(self, path, monkeypatch):
        for name in [name for name in sys.modules if name.startswith("mile.export._")]:
            monkeypatch.delitem(sys.modules, name)
        monkeypatch.setitem(sys.modules, "onnx", None)
        with pytest.raises(ImportError, match=r"pip install 'mile-bnn\[onnx\]'"):
            made_estimator().export(path)
