"""The paper's attention network on IMDB reviews: one network, one chain, the deep ensemble, and all chains.

Usage: python experiments/texts/run.py att_v2 --data-dir FOLDER

The tokenizer and the embeddings are learned from the training reviews, the embeddings by the classifier itself in two
epochs; then they are fixed. Rows are added to summary.csv as they finish; --summary and --validation are as for images.
"""

import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mile import Bars, Dataset, FanIn, datasets
from mile.ensemble.embeddings import pretrain_embedding, save_embedding
from mile.ensemble.training import Training
from mile.features.tokens import Tokenizer
from mile.networks import ATT_V2, Attention
from mile.priors import Prior
from mile.samplers.stochastic import Stochastic

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmark_data import Summary
from classifiers import compare, main

N_CHAINS = 4
N_CLASSES = 2
METHOD = "stochastic"


class Case(NamedTuple):
    """One row of the table."""

    network: Attention
    prior: Prior
    sampler: Stochastic
    n_train: int = 12_000  # reviews; a tenth of as many more are for validation
    n_test: int = 10_000
    training: Training = Training(batch_size=64)


CASES = {
    "att_v2": Case(
        ATT_V2,
        FanIn(),
        Stochastic(batch_size=256, warmup_steps=400, sampling_steps=600, n_draws=40),
    ),
}


def run(name: str, case: Case, summary: Summary, split: int, data_dir: str | None, *, validation: bool) -> None:
    """Fit one row, unless it is there."""
    if summary.has(dataset=f"imdb {name}", method=METHOD, split=split):
        return
    reviews: Any = datasets.load("imdb", data_dir)
    rng = np.random.default_rng(split)
    n_valid = case.n_train // 10
    chosen = rng.permutation(len(reviews.texts_train))[: case.n_train + n_valid]
    tested = rng.permutation(len(reviews.texts_test))[: case.n_test]
    texts = [reviews.texts_train[row] for row in chosen]
    y = np.asarray(reviews.labels_train)[chosen].astype(np.int32)
    began = time.perf_counter()
    tokenizer = Tokenizer.train(texts[n_valid:], case.network.vocabulary)
    ids = tokenizer.encode(texts, case.network.context)
    network = replace(case.network, vocabulary=tokenizer.vocabulary)
    with Bars() as progress:
        table = pretrain_embedding(
            ids[n_valid:], y[n_valid:], N_CLASSES, network, seed=split, training=case.training, progress=progress
        )
    seconds = time.perf_counter() - began
    save_embedding(Path(summary.path).with_suffix(f".{name}.{split}.safetensors"), table, tokenizer)
    print(f"imdb {name}: {tokenizer.vocabulary:,} tokens and their embeddings after {seconds:.0f} s", flush=True)
    dataset = Dataset.from_arrays(ids[n_valid:], y[n_valid:], ids[:n_valid], y[:n_valid])
    test = (ids[:n_valid], y[:n_valid])
    if not validation:
        new = tokenizer.encode([reviews.texts_test[row] for row in tested], network.context)
        test = (new, np.asarray(reviews.labels_test)[tested].astype(np.int32))
    network = replace(network, embedding=table).sized(network.input_shape, N_CLASSES)
    parts = (dataset, test, network, case.prior, case.training, case.sampler)
    compare(summary, f"imdb {name}", split, *parts, method=METHOD, n_chains=N_CHAINS, before=seconds)


if __name__ == "__main__":
    main(CASES, run, __doc__, Path(__file__).with_name("summary.csv"))
