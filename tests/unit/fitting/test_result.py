"""Fitted models in files: what is loaded is what was saved, to the last bit, wherever its draws are kept."""

import dataclasses
import os
import pickle
import shutil
import tracemalloc

import jax
import numpy as np
import pandas as pd
import pytest
import xarray
from models import N_CHAINS, N_INPUTS, made_estimator, made_fit
from perceptrons import OtherMLP
from sklearn.base import clone

import mile
from mile import (
    DeepEnsemble,
    FanIn,
    Laplace,
    Mile,
    MileClassifier,
    MileRegressor,
    PerLayer,
    RunMismatchError,
    Status,
    StorageError,
    StudentT,
    UntrustedFileError,
    _registry,
)
from mile.ensemble.training import Patience, Training
from mile.fitting import result as results_module
from mile.fitting.result import flat_draws, read_fit
from mile.likelihoods import LabeledResponse
from mile.networks import ACTIVATIONS, INITIALIZERS
from mile.priors import choose_prior
from mile.samplers import configure, presets_of
from mile.samplers.mile import Geometric, Linear
from mile.storage import FlatDraws, StoredDraws, _draw_files
from mile.storage._draws import encode

BUDGET = {"hidden_layer_sizes": (4,), "n_chains": 2, "warmup_steps": 60, "sampling_steps": 20, "max_epochs": 5}
RNG = np.random.default_rng(0)
X = RNG.standard_normal((40, N_INPUTS))
Y = X[:, 0] - 0.5 * X[:, 1] + 0.1 * RNG.standard_normal(40)
FRAME = pd.DataFrame(X, columns=["age", "dose", "größe"])
LABELS = np.array(["low", "mid", "top"])[np.digitize(Y, [-0.4, 0.4])]


@pytest.fixture(scope="module")
def model():
    return MileRegressor(**BUDGET, random_state=0).fit(FRAME, Y)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    MileRegressor(**BUDGET, random_state=0, run_dir=folder).fit(X, Y)
    return folder


@pytest.fixture(scope="module")
def classifier():
    return MileClassifier(**BUDGET, random_state=0).fit(X, LABELS)


@pytest.fixture(scope="module")
def ensemble():
    return MileRegressor(**BUDGET, random_state=0, sampler="deep_ensemble").fit(X, Y)


def saved(model, folder):
    """Return a model after a stay in a file; saved again it gives the same file."""
    model.save(folder / "first.mile")
    loaded = mile.load(folder / "first.mile")
    loaded.save(folder / "second.mile")
    assert (folder / "first.mile").read_bytes() == (folder / "second.mile").read_bytes()
    return loaded


def assert_same(one, other):
    """Compare trees: the same structure, names, types and bits; NaN is itself."""
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for left, right in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_array_equal(left, right, strict=True)


def assert_same_fit(one, other):
    assert_same(one.chains, other.chains)
    assert_same(one.members, other.members)
    assert_same((one.chain_ids, one.ok), (other.chain_ids, other.ok))
    assert one.status == other.status
    assert one.seed == other.seed
    for name in ("network", "likelihood", "prior", "sampler", "training", "temperature"):
        assert getattr(one, name) == getattr(other, name)
    for name in ("encoder", "response"):
        assert type(getattr(one, name)) is type(getattr(other, name))
        assert_same(getattr(one, name).tensors(), getattr(other, name).tensors())


def everything(fit, x=X, y=Y):
    """Return all that a regression predicts."""
    one = fit.predictive(x)
    return (
        one.mean,
        one.std,
        one.aleatoric_std,
        one.epistemic_std,
        one.log_prob(y),
        one.cdf(y),
        one.quantile([0.05, 0.5, 0.95]),
        one.interval(),
        one.sample(3, random_state=1),
        fit.ensemble_predictive(x).mean,
    )


class TestRoundTrip:
    def test_of_a_regression(self, model, tmp_path):
        loaded = saved(model, tmp_path)
        assert type(loaded) is MileRegressor
        assert_same_fit(loaded.fit_, model.fit_)
        assert_same(everything(loaded.fit_), everything(model.fit_))
        assert loaded.get_params() == model.get_params()
        assert (loaded.chain_status_, loaded.seed_, loaded.n_features_in_) == (model.chain_status_, 0, N_INPUTS)
        assert_same((loaded.tuned_, loaded.gradient_evaluations_), (model.tuned_, model.gradient_evaluations_))

    def test_of_a_classification(self, classifier, tmp_path):
        loaded = saved(classifier, tmp_path)
        assert type(loaded) is MileClassifier
        assert_same_fit(loaded.fit_, classifier.fit_)
        one, other = loaded.predictive(X), classifier.predictive(X)
        for name in ("probs", "labels", "entropy", "mutual_information", "classes"):
            assert_same(getattr(one, name), getattr(other, name))
        assert_same(one.log_prob(LABELS), other.log_prob(LABELS))
        assert_same(one.sample(3, random_state=1), other.sample(3, random_state=1))

    def test_of_an_ensemble(self, ensemble, tmp_path):
        loaded = saved(ensemble, tmp_path)
        assert_same_fit(loaded.fit_, ensemble.fit_)
        assert_same(everything(loaded.fit_), everything(ensemble.fit_))
        assert loaded.sampler == "deep_ensemble"

    def test_of_a_fit_without_an_estimator(self, tmp_path):
        for classes in (None, [0, 1, 2]):
            fit = made_fit(classes)
            loaded = saved(fit, tmp_path)
            assert type(loaded) is type(fit)
            assert_same_fit(loaded, fit)

    def test_of_classes_without_labels(self, tmp_path):
        loaded = saved(dataclasses.replace(made_fit([0, 1, 2]), response=LabeledResponse(3)), tmp_path)
        assert loaded.classes is None
        assert set(loaded.predictive(X).labels) <= {0, 1, 2}

    def test_keeps_what_the_caller_wants_to_keep(self, tmp_path):
        extra = {"words": ["a", "\ud800", "é"], "number": 0.1, "nothing": None, "deep": {"er": [1, [2]]}}
        made_fit().save(tmp_path / "fit.mile", extra=extra)
        assert read_fit(tmp_path / "fit.mile")[1] == extra

    @pytest.mark.parametrize("failed", [{0: "training"}, {1: "sampling"}, {1: "training"}])
    def test_keeps_chains_that_failed_and_why(self, failed, tmp_path):
        model = made_estimator(failed=failed)
        loaded = saved(model, tmp_path)
        (chain,) = failed
        assert loaded.fit_.status == model.fit_.status
        assert loaded.fit_.status[chain] != Status.OK
        assert loaded.fit_.ok.tolist() == [other != chain for other in range(N_CHAINS)]
        assert np.isnan(loaded.fit_.chains.draws[chain]).all()
        assert_same_fit(loaded.fit_, model.fit_)
        assert_same(everything(loaded.fit_), everything(model.fit_))

    def test_keeps_the_names_of_replaced_chains(self, tmp_path):
        fit = dataclasses.replace(made_fit(), chain_ids=np.array([0, 5]))
        assert saved(fit, tmp_path).chain_ids.tolist() == [0, 5]

    @pytest.mark.parametrize(
        "labels",
        [
            np.array([0, 1, 2]),
            np.array([-3, 0, 7], np.int16),
            np.array([3, 200], np.uint8),
            np.array([-(2**62), 2**62]),
            np.array([0.5, 1.5, 1e300]),
            np.array([False, True]),
            np.array(["a", "b b", "größe"]),
            np.array(["", "日本", "🂡"]),
            np.array(["no", "yes"], object),
            np.array([0, 1], object),
        ],
        ids=lambda labels: f"{labels.dtype}",
    )
    def test_keeps_labels_of_every_kind(self, labels, tmp_path):
        model = made_estimator(labels)
        if labels.dtype == object and not isinstance(labels[0], str):
            with pytest.raises(TypeError, match="numbers or strings"):
                model.save(tmp_path / "model.mile")
            return
        loaded = saved(model, tmp_path)
        assert loaded.classes_.tolist() == labels.tolist()
        assert loaded.predict(X).tolist() == model.predict(X).tolist()
        assert_same(loaded.predict_proba(X), model.predict_proba(X))
        assert_same(
            loaded.predictive(X).log_prob(labels[[1] * len(X)]), model.predictive(X).log_prob(labels[[1] * len(X)])
        )

    @pytest.mark.parametrize(
        ("labels", "error"), [(["a", "b\0"], ValueError), (["a", "b" * 2_000_000], ValueError), ([2**70, 1], TypeError)]
    )
    def test_refuses_to_write_labels_that_it_could_not_read(self, labels, error, tmp_path):
        with pytest.raises(error, match="labels"):
            made_estimator(np.array(labels, object)).save(tmp_path / "model.mile")
        assert not [*tmp_path.iterdir()]

    def test_keeps_the_names_of_columns_and_insists_on_them(self, model, tmp_path):
        loaded = saved(model, tmp_path)
        assert loaded.feature_names_in_.tolist() == ["age", "dose", "größe"]
        assert loaded.feature_names_in_.dtype == object
        np.testing.assert_array_equal(loaded.predict(FRAME), model.predict(FRAME))
        with pytest.raises(ValueError, match="feature names"):
            loaded.predict(FRAME.rename(columns={"dose": "other"}))
        with pytest.raises(ValueError, match="feature names"):
            loaded.predict(FRAME.iloc[:, :2])

    def test_without_names_it_counts_columns(self, classifier, tmp_path):
        loaded = saved(classifier, tmp_path)
        assert not hasattr(loaded, "feature_names_in_")
        with pytest.raises(ValueError, match="features"):
            loaded.predict(X[:, :2])

    @pytest.mark.parametrize("activation", ACTIVATIONS)
    def test_of_every_activation(self, activation, tmp_path):
        model = made_estimator().set_params(activation=activation)
        model.fit_ = dataclasses.replace(
            model.fit_, network=dataclasses.replace(model.fit_.network, activation=activation)
        )
        loaded = saved(model, tmp_path)
        assert (loaded.activation, loaded.fit_.network.activation) == (activation, activation)
        np.testing.assert_array_equal(loaded.predict(X), model.predict(X))

    @pytest.mark.parametrize("initializer", INITIALIZERS)
    def test_of_every_initializer(self, initializer, tmp_path):
        fit = made_fit()
        fit = dataclasses.replace(fit, network=dataclasses.replace(fit.network, initializer=initializer))
        assert saved(fit, tmp_path).network == fit.network

    @pytest.mark.parametrize(
        "sampler",
        [
            *((name, preset) for name in _registry.sampler if name != "auto" for preset in presets_of(name)),
            Mile(step_size=0.1, trust=2.0, fractions=(0.5, 0.25, 0.25), length_factor=0.3, n_coordinates=7),
            Mile(schedule=Geometric(start=0.4, end=0.01, fraction=1.0)),
            Mile(schedule=Linear(start=0.2, end=0.1), step_size_memory=1.0, n_fft_samples=4),
            DeepEnsemble(),
        ],
        ids=str,
    )
    def test_of_every_sampler(self, sampler, tmp_path):
        model = made_estimator().set_params(warmup_steps=None, sampling_steps=None)
        if isinstance(sampler, tuple):
            sampler, preset = sampler
            model.set_params(preset=preset)
        model.set_params(sampler=sampler)
        used = configure(sampler, model.preset).with_start(0.001)
        info = {phase.name: model.fit_.chains.info["sampling"] for phase in used.phases}
        chains = model.fit_.chains._replace(info=info, history={})
        model.fit_ = dataclasses.replace(model.fit_, sampler=used, chains=chains)
        loaded = saved(model, tmp_path)
        assert loaded.fit_.sampler == used
        assert (loaded.sampler, loaded.preset) == (model.sampler, model.preset)

    def test_of_every_part_of_the_training(self, tmp_path):
        training = Training(
            learning_rate=0.01, weight_decay=0.0, batch_size=7, max_epochs=9, stopping=Patience(epochs=2)
        )
        fit = dataclasses.replace(made_fit(), training=training, prior=mile.Normal(scale=0.3))
        loaded = saved(fit, tmp_path)
        assert (loaded.training, loaded.prior) == (training, mile.Normal(scale=0.3))

    @pytest.mark.parametrize(
        "prior",
        [
            *(name for name in _registry.prior if name != "per_layer"),
            StudentT(df=5.0, scale=0.3),
            FanIn(family=Laplace(scale=2.0), gain=1.0, bias=0.5),
            PerLayer(scales=(1.0, 0.1), family=StudentT()),
        ],
        ids=str,
    )
    def test_of_every_prior_and_its_temperature(self, prior, tmp_path):
        model = made_estimator().set_params(prior=prior, temperature=0.5)
        chosen = choose_prior(prior)
        model.fit_ = dataclasses.replace(model.fit_, prior=chosen, temperature=0.5)
        loaded = saved(model, tmp_path)
        assert (loaded.prior, loaded.temperature) == (clone(model).prior, clone(model).temperature) == (prior, 0.5)
        assert (loaded.fit_.prior, loaded.fit_.temperature) == (chosen, 0.5)

    def test_of_a_run_with_a_prior_and_a_temperature(self, tmp_path):
        arguments = BUDGET | {"prior": PerLayer(scales=(0.5, 2.0), family=Laplace()), "temperature": 0.5}
        model = MileRegressor(**arguments, random_state=0, run_dir=tmp_path / "run").fit(X, Y)
        for loaded in (mile.load(tmp_path / "run"), mile.resume(tmp_path / "run")):
            assert_same_fit(loaded.fit_, model.fit_)
            assert (loaded.prior, loaded.temperature) == (arguments["prior"], 0.5)
        for change in ({"prior": FanIn()}, {"temperature": 0.25}):
            (name,) = change
            with pytest.raises(RunMismatchError, match=f"^configuration.{name}.* differs"):
                MileRegressor(**arguments | change, random_state=0, run_dir=tmp_path / "run").fit(X, Y)

    def test_of_training_without_validation_rows(self, tmp_path):
        fit = made_fit()
        fit = dataclasses.replace(fit, members=fit.members._replace(validation_loss=np.full((N_CHAINS, 3), np.nan)))
        assert_same_fit(saved(fit, tmp_path), fit)


class TestWhereDrawsAre:
    """In memory, in a file that is mapped, or in the chunks of a run: predictions are the same."""

    def test_a_large_file_is_mapped_and_predicts_the_same_bits(self, model, tmp_path, monkeypatch):
        model.save(tmp_path / "model.mile")
        monkeypatch.setattr(results_module, "DRAWS_IN_MEMORY", 1000)
        mapped = mile.load(tmp_path / "model.mile")
        assert isinstance(mapped.fit_.chains.draws, np.memmap)
        assert not mapped.fit_.chains.draws.flags.writeable
        assert not isinstance(mapped.fit_.chains.logdensity, np.memmap)
        assert_same(everything(mapped.fit_), everything(model.fit_))

    def test_a_large_file_of_classes_is_mapped_too(self, classifier, tmp_path, monkeypatch):
        classifier.save(tmp_path / "model.mile")
        monkeypatch.setattr(results_module, "DRAWS_IN_MEMORY", 1000)
        mapped = mile.load(tmp_path / "model.mile")
        assert isinstance(mapped.fit_.chains.draws, np.memmap)
        assert_same(mapped.predict_proba(X), classifier.predict_proba(X))
        assert_same(mapped.predictive(X).log_prob(LABELS), classifier.predictive(X).log_prob(LABELS))

    @pytest.mark.parametrize("failed", [None, {0: "sampling"}])
    def test_a_mapped_file_can_be_saved_pickled_and_looked_at(self, failed, tmp_path, monkeypatch):
        model = made_estimator(failed=failed)
        model.save(tmp_path / "model.mile")
        monkeypatch.setattr(results_module, "DRAWS_IN_MEMORY", 100)
        mapped = saved(mile.load(tmp_path / "model.mile"), tmp_path)
        assert_same(everything(pickle.loads(pickle.dumps(mapped)).fit_), everything(model.fit_))
        assert_same(everything(mapped.fit_), everything(model.fit_))
        assert mapped.to_arviz().equals(model.to_arviz())

    @pytest.mark.parametrize("kind", [None, OtherMLP], ids=["native", "XLA"])
    def test_a_mapped_file_is_read_in_parts(self, kind, tmp_path, monkeypatch):
        fit = made_fit(failed={0: "sampling"}, n_draws=50_000)
        fit.save(tmp_path / "fit.mile")
        monkeypatch.setattr(results_module, "DRAWS_IN_MEMORY", 100_000)
        mapped = mile.load(tmp_path / "fit.mile")
        if kind is not None:
            fit, mapped = (
                dataclasses.replace(one, network=kind(**dataclasses.asdict(one.network))) for one in (fit, mapped)
            )
        tracemalloc.start()
        try:
            draws = flat_draws(mapped.chains.draws, mapped.ok)
            assert isinstance(draws, FlatDraws)
            assert draws[1000:2000].shape == (1000, fit.network.dimension)
            assert tracemalloc.get_traced_memory()[1] < 0.1 * draws.shape[0] * draws.shape[1] * 4
        finally:
            tracemalloc.stop()
        assert_same(mapped.predictive(X[:2]).mean, fit.predictive(X[:2]).mean)

    def test_a_mapped_file_is_still_searched_for_weights_that_are_not_finite(self, tmp_path, monkeypatch):
        fit = made_fit(n_draws=20)
        fit.chains.draws[1, 19, -1] = np.nan
        fit.save(tmp_path / "model.mile")
        monkeypatch.setattr(results_module, "DRAWS_IN_MEMORY", 100)
        monkeypatch.setattr(results_module, "_CHECKED_VALUES", 50)
        with pytest.raises(UntrustedFileError, match="not finite"):
            mile.load(tmp_path / "model.mile")

    def test_a_run_is_loaded_as_what_was_fitted(self, model, run):
        loaded = mile.load(run)
        assert isinstance(loaded.fit_.chains.draws, np.ndarray)
        assert_same(loaded.fit_.chains, model.fit_.chains)
        assert_same(everything(loaded.fit_), everything(model.fit_))

    @pytest.mark.parametrize("kind", [None, OtherMLP], ids=["native", "XLA"])
    def test_a_large_run_stays_on_disk_and_predicts_the_same_bits(self, kind, model, run, monkeypatch):
        def with_network(fit):
            fields = dataclasses.asdict(fit.network)
            return fit if kind is None else dataclasses.replace(fit, network=kind(**fields))

        monkeypatch.setattr(_draw_files, "DRAWS_IN_MEMORY", 100)
        stored = mile.load(run).fit_
        assert isinstance(stored.chains.draws, StoredDraws)
        assert_same(np.asarray(stored.chains.draws), model.fit_.chains.draws)
        assert_same(everything(with_network(stored)), everything(with_network(model.fit_)))

    @pytest.mark.parametrize(
        "kind", [pytest.param(None, id="native"), pytest.param(OtherMLP, id="XLA", marks=pytest.mark.slow)]
    )
    def test_more_draws_than_one_part_predict_the_same_bits(self, kind, tmp_path):
        fit = made_fit(n_draws=1500)
        if kind is not None:
            fit = dataclasses.replace(fit, network=kind(**dataclasses.asdict(fit.network)))
        paths, chunk = [], 400
        for chain in range(N_CHAINS):
            paths.append([])
            for start in range(0, 1500, chunk):
                piece = fit.chains.draws[chain, start : start + chunk]
                paths[-1].append(tmp_path / f"{chain}-{start}")
                paths[-1][-1].write_bytes(encode(piece, chunk))
        draws = StoredDraws(paths, 1500, chunk, fit.network.dimension, np.dtype(np.float32))
        stored = dataclasses.replace(fit, chains=fit.chains._replace(draws=draws))
        assert_same(everything(stored), everything(fit))

    def test_a_large_run_can_be_saved_as_a_file(self, model, run, tmp_path, monkeypatch):
        monkeypatch.setattr(_draw_files, "DRAWS_IN_MEMORY", 100)
        loaded = saved(mile.load(run), tmp_path)
        assert_same(loaded.fit_.chains.draws, model.fit_.chains.draws)
        assert_same(everything(loaded.fit_), everything(model.fit_))

    def test_a_run_that_was_moved_is_the_same_run(self, model, run, tmp_path):
        moved = shutil.copytree(run, tmp_path / "moved")
        np.testing.assert_array_equal(mile.load(moved).predict(X), mile.load(run).predict(X))


class OtherMile(Mile):
    """A sampler of the user's own."""


class Never:
    """A stopping rule of the user's own."""

    def init(self):
        return ()

    def update(self, waiting, loss):
        return waiting, True, False


class TestSave:
    @pytest.mark.parametrize("part", ["network", "sampler", "training"])
    def test_refuses_classes_that_no_file_can_describe(self, part, tmp_path):
        fit = made_fit()
        own = {
            "network": OtherMLP(**dataclasses.asdict(fit.network)),
            "sampler": OtherMile(step_size=0.1),
            "training": Training(stopping=Never()),
        }
        with pytest.raises(TypeError, match=part):
            dataclasses.replace(fit, **{part: own[part]}).save(tmp_path / "fit.mile")
        assert not [*tmp_path.iterdir()]

    def test_makes_the_folders_that_are_missing(self, tmp_path):
        made_fit().save(tmp_path / "a" / "b" / "fit.mile")
        made_fit().save(str(tmp_path / "a" / "b" / "fit.mile"))
        assert_same_fit(mile.load(str(tmp_path / "a" / "b" / "fit.mile")), made_fit())

    def test_is_the_same_file_every_time(self, tmp_path):
        for name in ("one", "other"):
            made_estimator().save(tmp_path / name)
        assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()

    @pytest.mark.parametrize("function", ["replace", "fsync"])
    def test_that_fails_leaves_the_old_file(self, function, tmp_path, monkeypatch):
        path = tmp_path / "model.mile"
        made_estimator(seed=1).save(path)
        before = path.read_bytes()

        def fail(*_):
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(os, function, fail)
            with pytest.raises(StorageError, match=r"model\.mile.*No space left"):
                made_estimator(seed=2).save(path)
        assert path.read_bytes() == before
        assert [entry.name for entry in tmp_path.iterdir()] == ["model.mile"]
        made_estimator(seed=2).save(path)
        assert mile.load(path).seed_ == 2

    def test_that_fails_half_way_leaves_the_old_file(self, tmp_path):
        class Draws:
            """Draws on a disk that breaks."""

            def __init__(self, draws):
                self.shape, self.dtype, self.ndim, self.passes = draws.shape, draws.dtype, 3, 0

            def pieces(self):
                self.passes += 1  # the first is for the checksum
                yield np.zeros(16, np.uint8)
                if self.passes > 1:
                    raise OSError(5, "Input/output error")

        path, fit = tmp_path / "fit.mile", made_fit()
        fit.save(path)
        with pytest.raises(StorageError, match="Input/output"):
            dataclasses.replace(fit, chains=fit.chains._replace(draws=Draws(fit.chains.draws))).save(path)
        assert_same_fit(mile.load(path), fit)
        assert [entry.name for entry in tmp_path.iterdir()] == ["fit.mile"]

    def test_of_an_estimator_needs_a_fit(self, tmp_path):
        with pytest.raises(ValueError, match="not fitted"):
            MileRegressor().save(tmp_path / "model.mile")
        with pytest.raises(ValueError, match="not fitted"):
            MileRegressor().to_arviz()


class TestLoaded:
    def test_is_cloned_without_its_fit(self, model, tmp_path):
        loaded = saved(model, tmp_path)
        copy = clone(loaded)
        assert not hasattr(copy, "fit_")
        assert copy.get_params() == loaded.get_params()

    def test_is_pickled_with_its_fit(self, classifier, tmp_path):
        copy = pickle.loads(pickle.dumps(saved(classifier, tmp_path)))
        assert_same(copy.predict_proba(X), classifier.predict_proba(X))
        assert copy.classes_.tolist() == classifier.classes_.tolist()

    def test_can_be_fitted_again_to_the_same_bits(self, model, classifier, tmp_path):
        np.testing.assert_array_equal(saved(model, tmp_path).fit(FRAME, Y).predict(FRAME), model.predict(FRAME))
        again = saved(classifier, tmp_path).fit(X, LABELS)
        np.testing.assert_array_equal(again.predict_proba(X), classifier.predict_proba(X))

    def test_keeps_the_seed_that_was_drawn(self, tmp_path):
        model = made_estimator(seed=123456)
        assert model.random_state is None
        loaded = saved(model, tmp_path)
        assert (loaded.random_state, loaded.seed_) == (123456, 123456)

    def test_does_not_keep_the_folder_of_its_run(self, run, tmp_path):
        assert mile.load(run).run_dir is None
        assert saved(mile.load(run), tmp_path).run_dir is None


class TestArviz:
    def test_groups_hold_draws_and_statistics(self, model):
        tree = model.to_arviz()
        chains = model.fit_.chains
        assert isinstance(tree, xarray.DataTree)
        assert set(tree.children) == {"posterior", "sample_stats"}
        assert tree["posterior"]["weights"].dims == ("chain", "draw", "weight")
        np.testing.assert_array_equal(tree["posterior"]["weights"], chains.draws)
        np.testing.assert_array_equal(tree["sample_stats"]["lp"], chains.logdensity)
        np.testing.assert_array_equal(tree["sample_stats"]["energy_change"], chains.energy_change)
        for group in tree.children.values():
            assert group["chain"].values.tolist() == [0, 1]
            assert group["draw"].values.tolist() == [*range(20)]
            assert group.attrs == {"inference_library": "mile", "sampler": "mile", "seed": 0}

    def test_only_good_chains_are_there_by_their_names(self):
        fit = dataclasses.replace(made_fit(failed={0: "sampling"}), chain_ids=np.array([0, 5]))
        tree = fit.to_arviz()
        assert tree["posterior"]["chain"].values.tolist() == [5]
        np.testing.assert_array_equal(tree["posterior"]["weights"], fit.chains.draws[1:])
        np.testing.assert_array_equal(tree["sample_stats"]["lp"], fit.chains.logdensity[1:])

    def test_draws_on_disk_are_the_same(self, model, run, monkeypatch):
        monkeypatch.setattr(_draw_files, "DRAWS_IN_MEMORY", 100)
        assert mile.load(run).to_arviz().equals(model.to_arviz())

    def test_a_netcdf_file_gives_it_back(self, model, tmp_path):
        pytest.importorskip("h5py")
        tree = model.to_arviz()
        tree.to_netcdf(tmp_path / "model.nc", engine="h5netcdf")
        with xarray.open_datatree(tmp_path / "model.nc", engine="h5netcdf") as opened:
            assert opened.load().identical(tree)

    def test_a_zarr_store_gives_it_back(self, model, tmp_path):
        tree = model.to_arviz()
        tree.to_zarr(tmp_path / "model.zarr", zarr_format=2)
        with xarray.open_datatree(tmp_path / "model.zarr", engine="zarr") as opened:
            assert opened.load().identical(tree)

    def test_arviz_reads_it(self, model):
        arviz_stats = pytest.importorskip("arviz_stats")
        ess = arviz_stats.ess(model.to_arviz()["posterior"].to_dataset())
        assert ess["weights"].shape == (model.fit_.network.dimension,)

    def test_without_xarray_it_says_what_to_install(self, monkeypatch):
        monkeypatch.setitem(__import__("sys").modules, "xarray", None)
        with pytest.raises(ImportError, match=r"mile-bnn\[arviz\]"):
            made_fit().to_arviz()
