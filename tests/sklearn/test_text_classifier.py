"""The classifier of texts: what it learns, keeps, refuses, and how it goes on after a stop."""

import builtins
import dataclasses
import os
import signal
import time

import numpy as np
import pandas as pd
import pytest
from sentences import BUDGET, SMALL, some_sentences
from sklearn.base import clone

import mile
from mile import FitWarning, MileClassifier, MileTextClassifier
from mile._errors import UntrustedFileError
from mile._progress import Silent
from mile.ensemble.embeddings import load_embedding, load_tokenizer
from mile.estimators import _base, _text
from mile.features.tokens import Tokenizer
from mile.networks import ATT_V1, Attention, FixedArray
from mile.storage import read_tensors, write_tensors

TEXTS, LABELS = some_sentences(80)
NEW, NEW_LABELS = some_sentences(30, seed=1)
PRETRAINED = dataclasses.replace(SMALL, pretrained=True)


def estimator(network=SMALL, **changes):
    return MileTextClassifier(network, **(BUDGET | changes))


@pytest.fixture(scope="module")
def model():
    return estimator(learning_rate=0.02).fit(TEXTS, LABELS)


@pytest.fixture(scope="module")
def pretrained():
    return estimator(PRETRAINED, pretraining_epochs=3).fit(TEXTS, LABELS)


class TestLearning:
    def test_labels_of_new_texts_are_predicted(self, model):
        assert model.classes_.tolist() == ["bad", "good"]
        assert model.score(NEW, NEW_LABELS) > 0.9
        assert model.lppd(NEW, NEW_LABELS) > np.log(0.5)

    def test_probabilities_are_probabilities(self, model):
        probabilities = model.predict_proba(NEW)
        assert probabilities.shape == (30, 2)
        np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
        np.testing.assert_array_equal(model.predict(NEW), model.classes_[probabilities.argmax(axis=1)])

    def test_any_kind_of_column_gives_the_same(self, model):
        expected = model.predict_proba(NEW)
        for kind in (tuple, np.array, pd.Series, lambda texts: np.array(texts, object)):
            np.testing.assert_array_equal(model.predict_proba(kind(NEW)), expected)

    def test_texts_without_a_word_are_padding_and_have_a_prediction(self, model):
        empty = model.predict_proba(["", "   ", "<br />"])
        assert np.isfinite(empty).all()
        np.testing.assert_array_equal(empty[0], empty[1])
        np.testing.assert_array_equal(empty[0], empty[2])

    def test_a_text_of_a_megabyte_is_read_to_the_context_only(self, model):
        beginning = "the film was lovely " * 6
        began = time.perf_counter()
        found = model.predict_proba([beginning + "and awful " * 100_000])
        assert time.perf_counter() - began < 10.0
        np.testing.assert_allclose(found, model.predict_proba([beginning]), rtol=1e-6)

    def test_no_texts_give_no_predictions(self, model):
        assert model.predict_proba([]).shape == (0, 2)

    def test_the_vocabulary_and_the_context_can_be_chosen(self):
        fitted = estimator("att_v1", vocabulary_size=280, context=9, sampler="deep_ensemble", max_epochs=1).fit(
            TEXTS, LABELS
        )
        network = fitted.fit_.network
        assert (network.vocabulary, network.context, network.width) == (280, 9, ATT_V1.width)
        assert fitted.tokenizer_.vocabulary <= 280

    def test_tokens_and_embeddings_are_learned_from_training_texts_only(self, monkeypatch):
        seen = {}

        def train(texts, vocabulary):
            seen["texts"] = list(texts)
            return Tokenizer(merges=())

        def pretrain(ids, codes, n_classes, network, **options):
            seen["rows"], seen["options"] = len(ids), options
            return FixedArray(np.zeros((network.vocabulary + network.context, network.width)))

        monkeypatch.setattr(Tokenizer, "train", train)
        monkeypatch.setattr(_text, "pretrain_embedding", pretrain)
        fitted = estimator(PRETRAINED, sampler="deep_ensemble", max_epochs=1, batch_size=16).fit(TEXTS, LABELS)
        assert len(seen["texts"]) == seen["rows"] == 70  # of 80
        assert (seen["options"]["epochs"], seen["options"]["training"].batch_size) == (2, 16)
        assert fitted.embedding_ == FixedArray(np.zeros((312, 8)))

    def test_fixed_embeddings_are_no_parameters(self, model, pretrained):
        assert model.embedding_ is None
        assert pretrained.embedding_.shape == (312, 8)
        assert pretrained.fit_.network.dimension == model.fit_.network.dimension - 312 * 8

    def test_the_same_seed_gives_the_same_numbers(self, pretrained):
        again = clone(pretrained).fit(TEXTS, LABELS)
        np.testing.assert_array_equal(again.predict_proba(NEW), pretrained.predict_proba(NEW))
        assert again.tokenizer_ == pretrained.tokenizer_

    def test_a_forecast_fits_nothing(self):
        unfitted = estimator(PRETRAINED)
        expected = unfitted.forecast(TEXTS, LABELS)
        assert expected.n_weights == PRETRAINED.sized((12,), 2).dimension
        assert not hasattr(unfitted, "fit_")

    def test_a_report_says_what_was_read(self, model, tmp_path):
        model.report(tmp_path / "page.html", NEW, NEW_LABELS)
        assert "from texts of up to 12 tokens" in (tmp_path / "page.html").read_text()


class TestFiles:
    @pytest.mark.parametrize("which", ["model", "pretrained"])
    def test_a_saved_model_predicts_the_same(self, which, request, tmp_path):
        fitted = request.getfixturevalue(which)
        fitted.save(tmp_path / "model.mile")
        again = mile.load(tmp_path / "model.mile")
        assert type(again) is MileTextClassifier
        assert again.get_params() == fitted.get_params()
        assert again.tokenizer_ == fitted.tokenizer_
        np.testing.assert_array_equal(again.predict_proba(NEW), fitted.predict_proba(NEW))
        np.testing.assert_array_equal(again.predict(NEW), fitted.predict(NEW))

    def test_names_of_columns_are_kept(self, tmp_path):
        table = pd.DataFrame({"review": TEXTS, "mood": LABELS})
        fitted = estimator(sampler="deep_ensemble", max_epochs=1).fit(table["review"], table["mood"])
        fitted.save(tmp_path / "model.mile")
        again = mile.load(tmp_path / "model.mile")
        assert (again.text_name_, again.target_name_) == ("review", "mood")

    def test_an_embedding_file_brings_its_tokens(self, pretrained, tmp_path):
        path = tmp_path / "embedding.safetensors"
        pretrained.save_embedding(path)
        assert load_embedding(path) == pretrained.embedding_
        assert load_tokenizer(path) == pretrained.tokenizer_
        # Other texts would give other tokens.
        options = {"embedding": str(path), "sampler": "deep_ensemble", "max_epochs": 1}
        other = estimator(**options).fit([text.replace("the", "zzz") for text in TEXTS], LABELS)
        assert other.tokenizer_ == pretrained.tokenizer_
        assert other.embedding_ == pretrained.embedding_
        other.save(tmp_path / "model.mile")
        again = mile.load(tmp_path / "model.mile")
        assert again.embedding == pretrained.embedding_
        np.testing.assert_array_equal(again.predict_proba(NEW), other.predict_proba(NEW))

    def test_sampled_embeddings_cannot_be_saved_alone(self, model, tmp_path):
        with pytest.raises(ValueError, match="samples its embeddings"):
            model.save_embedding(tmp_path / "embedding")

    def test_a_file_without_a_usable_tokenizer_is_refused(self, model, tmp_path):
        path = tmp_path / "model.mile"
        model.save(path)
        arrays, metadata = read_tensors(path)
        too_large = Tokenizer(merges=tuple((1, second) for second in range(1, 200))).to_bytes()
        for data in (b"", b"{}", too_large, None):
            kept = {name: array for name, array in arrays.items() if name != "encoder.tokenizer"}
            added = {} if data is None else {"encoder.tokenizer": np.frombuffer(data, np.uint8)}
            write_tensors(path, kept | added, metadata)
            with pytest.raises(UntrustedFileError):
                mile.load(path)

    def test_a_file_without_the_embedding_is_refused(self, pretrained, tmp_path):
        network = dataclasses.replace(pretrained.fit_.network, embedding=None)
        broken = dataclasses.replace(pretrained.fit_, network=network)
        broken.save(tmp_path / "model.mile", extra=pretrained._origin(pretrained.seed_))
        with pytest.raises(UntrustedFileError, match="embedding"):
            mile.load(tmp_path / "model.mile")

    def test_a_file_that_calls_a_table_a_text_is_refused(self, tmp_path):
        rng = np.random.default_rng(0)
        table = MileClassifier((4,), sampler="deep_ensemble", max_epochs=1, n_chains=2, random_state=0)
        table.fit(rng.normal(size=(40, 12)), rng.integers(0, 2, 40))
        origin = estimator(random_state=0)
        origin.text_name_ = None
        table.fit_.save(tmp_path / "model.mile", extra=origin._origin(0))
        with pytest.raises(UntrustedFileError, match="attention network"):
            mile.load(tmp_path / "model.mile")


class StoppingAt(Silent):
    """Asks for a stop, as Ctrl-C does, when a stage begins."""

    def __init__(self, stage):
        self._stage = stage

    def start(self, stage, total, *, unit="steps", n_chains=1):
        if stage == self._stage:
            os.kill(os.getpid(), signal.SIGINT)


class TestRuns:
    @pytest.fixture
    def stopped(self, monkeypatch, tmp_path):
        """Return the folder of a run that was stopped before it sampled."""

        class Stopping:
            def __init__(self, wanted): ...

            def __enter__(self):
                return StoppingAt("sampling")

            def __exit__(self, *_): ...

        with monkeypatch.context() as patch:
            patch.setattr(_base, "show_progress", Stopping)
            with pytest.raises(mile.Interrupted):
                estimator(PRETRAINED, pretraining_epochs=3, run_dir=tmp_path / "run").fit(TEXTS, LABELS)
        return tmp_path / "run"

    def test_resume_goes_on_without_learning_tokens_or_embeddings_again(self, stopped, pretrained, monkeypatch):
        def never(*arguments, **options):
            raise AssertionError("must not be called")

        monkeypatch.setattr(Tokenizer, "train", never)
        monkeypatch.setattr(_text, "pretrain_embedding", never)
        resumed = mile.resume(stopped)
        assert type(resumed) is MileTextClassifier
        np.testing.assert_array_equal(resumed.predict_proba(NEW), pretrained.predict_proba(NEW))
        np.testing.assert_array_equal(mile.load(stopped).predict_proba(NEW), pretrained.predict_proba(NEW))

    def test_fitting_again_goes_on_and_other_texts_are_refused(self, stopped, pretrained):
        with pytest.raises(mile.RunMismatchError):
            estimator(PRETRAINED, pretraining_epochs=3, run_dir=stopped).fit(["the good film", *TEXTS[1:]], LABELS)
        fitted = estimator(PRETRAINED, pretraining_epochs=3, run_dir=stopped).fit(TEXTS, LABELS)
        np.testing.assert_array_equal(fitted.predict_proba(NEW), pretrained.predict_proba(NEW))


class TestRefusals:
    @pytest.mark.parametrize(
        ("texts", "message"),
        [
            ([*TEXTS[:79], None], "row 79 has a missing value"),
            ([*TEXTS[:79], np.nan], "row 79 has a missing value"),
            ([*TEXTS[:79], b"x"], "row 79 has .* of type bytes"),
            ([*TEXTS[:79], 5], "row 79 has '5' of type int"),
            (TEXTS[:79], "inconsistent numbers of samples"),
            ("one text", "got one"),
            (np.array([TEXTS]).T, "single column"),
        ],
    )
    def test_texts_that_cannot_be_used_are_named(self, texts, message):
        unfitted = estimator()
        with pytest.raises(ValueError, match=message):
            unfitted.fit(texts, LABELS)
        assert not hasattr(unfitted, "fit_")

    def test_predicting_what_is_no_text_is_refused(self, model):
        with pytest.raises(ValueError, match="row 1 has a missing value"):
            model.predict(["fine", None])

    @pytest.mark.parametrize(
        ("labels", "message"),
        [
            (["a"] * 80, "at least 2 classes"),
            ([None] * 80, "missing value in each of the 80 rows"),
            ([LABELS] * 80, "y should be a 1d array"),
        ],
    )
    def test_labels_that_cannot_be_used_are_named(self, labels, message):
        with pytest.raises(ValueError, match=message):
            estimator().fit(TEXTS, labels)

    def test_rows_without_a_label_are_left_out_with_a_count(self, monkeypatch):
        kept = []
        monkeypatch.setattr(_base, "run_job", lambda job, *_, **__: kept.append(job.dataset.train.number))
        with pytest.warns(FitWarning, match=r"y has no value in 2 of 80 rows, which are left out\.$"):
            estimator(validation_fraction=0.0).fit(TEXTS, [None, *LABELS[1:79], np.nan])
        np.testing.assert_array_equal(np.sort(kept[0]), np.arange(1, 79))

    def test_one_text_is_not_enough(self):
        with pytest.raises(ValueError, match="at least 2 texts"):
            estimator().fit(TEXTS[:1], LABELS[:1])

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"network": "lenet5"}, "network must be one of"),
            ({"network": None}, "network must be one of"),
            ({"network": Attention}, "network must be one of"),
            ({"network": mile.MLP(n_inputs=12)}, "network must be one of"),
            ({"vocabulary_size": 256}, "257 tokens"),
            ({"vocabulary_size": 2.5}, "vocabulary"),
            ({"context": 0}, "context"),
            ({"pretraining_epochs": 0}, "pretraining_epochs"),
            ({"embedding": 3}, "embedding must be"),
            ({"embedding": np.zeros((312, 8))}, "embedding must be"),
            ({"embedding": FixedArray(np.zeros((3, 8)))}, r"shape \(312, 8\)"),
            ({"embedding": "nowhere.safetensors"}, "there is none at 'nowhere.safetensors'"),
            (
                {"network": dataclasses.replace(SMALL, embedding=FixedArray(np.zeros((312, 8)))), "context": 13},
                r"shape \(313, 8\)",
            ),
            (
                {
                    "network": dataclasses.replace(SMALL, embedding=FixedArray(np.zeros((312, 8)))),
                    "embedding": FixedArray(np.zeros((312, 8))),
                },
                "embedding of its own",
            ),
            ({"learning_rate": 0}, "learning_rate"),
        ],
    )
    def test_impossible_arguments_are_refused_before_any_training(self, changes, message):
        unfitted = estimator().set_params(**changes)
        with pytest.raises(ValueError, match=message):
            unfitted.fit(TEXTS, LABELS)
        assert not hasattr(unfitted, "fit_")

    def test_an_embedding_file_with_more_tokens_than_the_network_is_refused(self, pretrained, tmp_path):
        pretrained.save_embedding(tmp_path / "embedding")
        with pytest.raises(ValueError, match="shape"):
            estimator(vocabulary_size=280, embedding=tmp_path / "embedding").fit(TEXTS, LABELS)

    def test_a_classifier_of_tables_does_not_take_a_network_for_texts(self):
        with pytest.raises(ValueError, match="MileTextClassifier"):
            MileClassifier(network=SMALL).fit(np.zeros((30, 12)), [0, 1] * 15)

    def test_without_the_package_the_message_says_what_to_install(self, monkeypatch):
        usual = builtins.__import__

        def without(name, *arguments, **options):
            if name.partition(".")[0] == "tokenizers":
                raise ImportError(name)
            return usual(name, *arguments, **options)

        monkeypatch.setattr(builtins, "__import__", without)
        with pytest.raises(ImportError, match=r"pip install 'mile-bnn\[text\]'"):
            estimator().fit(TEXTS, LABELS)
