"""Embeddings: training them beforehand, and the file they are kept in."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from mile._errors import CorruptFileError, FitFailedError, UntrustedFileError
from mile.ensemble.embeddings import load_embedding, pretrain_embedding, save_embedding
from mile.ensemble.training import Training
from mile.networks import Attention, FixedArray
from mile.storage import write_tensors

NETWORK = Attention(vocabulary=30, context=8, width=12, heads=2, attention_width=8, hidden=(6,), pretrained=True)


def some_texts(n_texts=200, seed=0):
    """Texts whose class is told by which half of the vocabulary they use."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 2, n_texts)
    ids = rng.integers(1, 15, (n_texts, 8)) + 14 * codes[:, None]
    return np.where(np.arange(8) < rng.integers(1, 9, n_texts)[:, None], ids, 0).astype(np.float32), codes


@pytest.fixture(scope="module")
def table():
    return pretrain_embedding(*some_texts(), 2, NETWORK, seed=0, epochs=20, training=Training(learning_rate=1e-2))


def test_the_table_fits_the_network_and_tells_the_classes_apart(table):
    assert table.shape == (38, 12)
    network = replace(NETWORK, embedding=table).sized((8,), 2)
    assert network.apply(jnp.zeros(network.dimension), jnp.zeros((8, 3))).shape == (2, 3)
    halves = table.values[1:15].mean(axis=0), table.values[15:29].mean(axis=0)
    spread = table.values[1:29].std(axis=0).mean()
    assert np.linalg.norm(halves[0] - halves[1]) > 2 * spread


def test_the_same_seed_gives_the_same_table_and_another_does_not(table):
    ids, codes = some_texts()
    first, again = (pretrain_embedding(ids, codes, 2, NETWORK, seed=1, epochs=1) for _ in range(2))
    assert first == again != pretrain_embedding(ids, codes, 2, NETWORK, seed=2, epochs=1)


def test_a_table_that_the_network_has_does_not_matter(table):
    ids, codes = some_texts()
    with_one = replace(NETWORK, embedding=table)
    assert pretrain_embedding(ids, codes, 2, with_one, seed=1, epochs=1) == pretrain_embedding(
        ids, codes, 2, NETWORK, seed=1, epochs=1
    )


def test_progress_is_told_under_its_own_name():
    told = []

    class Listener:
        def start(self, stage, total, *, unit="steps", n_chains=1):
            told.append((stage, total, unit, n_chains))

        def advance(self, amount):
            told.append(amount)

        def note(self, text): ...

        def finish(self):
            told.append("finished")

        def say(self, text): ...

    pretrain_embedding(*some_texts(), 2, NETWORK, seed=0, epochs=3, progress=Listener())
    assert told == [("embedding", 3, "epochs", 1), 3, "finished"]


def test_weights_that_run_away_are_an_error():
    with pytest.raises(FitFailedError, match="learning rate"):
        pretrain_embedding(*some_texts(), 2, NETWORK, seed=0, training=Training(learning_rate=1e38))


@pytest.mark.parametrize("epochs", [0, -1, 1.5, None])
def test_impossible_epochs_are_refused(epochs):
    with pytest.raises(ValueError, match="epochs must be an integer of at least 1"):
        pretrain_embedding(*some_texts(), 2, NETWORK, seed=0, epochs=epochs)


def test_a_file_gives_the_table_back(table, tmp_path):
    save_embedding(tmp_path / "embedding.safetensors", table)
    assert load_embedding(str(tmp_path / "embedding.safetensors")) == table


GOOD = {"format": 1, "kind": "embedding"}


@pytest.mark.parametrize(
    ("arrays", "metadata"),
    [
        ({"embedding": np.zeros((3, 2), np.float32)}, {"format": 2, "kind": "embedding"}),
        ({"embedding": np.zeros((3, 2), np.float32)}, {}),
        ({"other": np.zeros((3, 2), np.float32)}, GOOD),
        ({"embedding": np.zeros((3, 2), np.float32), "other": np.zeros(1, np.float32)}, GOOD),
        ({"embedding": np.zeros((3, 2), np.float64)}, GOOD),
        ({"embedding": np.zeros(3, np.float32)}, GOOD),
        ({"embedding": np.zeros((0, 2), np.float32)}, GOOD),
        ({"embedding": np.full((3, 2), np.nan, np.float32)}, GOOD),
    ],
)
def test_files_that_hold_anything_else_are_refused(arrays, metadata, tmp_path):
    write_tensors(tmp_path / "file", arrays, metadata)
    with pytest.raises(UntrustedFileError):
        load_embedding(tmp_path / "file")


def test_an_altered_file_is_noticed(table, tmp_path):
    save_embedding(tmp_path / "file", table)
    data = bytearray((tmp_path / "file").read_bytes())
    data[-1] ^= 1
    (tmp_path / "file").write_bytes(data)
    with pytest.raises(CorruptFileError):
        load_embedding(tmp_path / "file")


def test_a_table_for_another_network_is_refused_by_shape(table):
    assert isinstance(table, FixedArray)
    with pytest.raises(ValueError, match="shape"):
        replace(NETWORK, vocabulary=31, embedding=table)
