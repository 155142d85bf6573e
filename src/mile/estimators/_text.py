"""Classification of texts."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self, cast

import numpy as np
from sklearn.utils import InputTags, Tags
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d

from mile._checks import check_choice, check_count, check_path
from mile._errors import UntrustedFileError
from mile._json import Json
from mile._progress import Progress
from mile.data import Dataset
from mile.ensemble.embeddings import load_embedding, load_tokenizer, pretrain_embedding, save_embedding
from mile.ensemble.training import Training
from mile.estimators._arguments import Configuration
from mile.estimators._classifier import MileClassifier
from mile.estimators._foldings import Labels
from mile.estimators._inputs import refuse_bad_response
from mile.estimators._responses import split_missing
from mile.estimators._task import CheckedRows, LearningTask
from mile.execution import Backend
from mile.features.accepted import ClassWeights, InputLike, ResponseLike, WeightsLike
from mile.features.tokens import SMALLEST_VOCABULARY, TextEncoder, Tokenizer, check_texts
from mile.fitting.forecast import Forecast
from mile.fitting.result import Fit
from mile.networks import TEXT_TEMPLATES, Attention, FixedArray
from mile.priors import Prior
from mile.samplers import DEFAULT, Sampler


class MileTextClassifier(MileClassifier):
    """Classification of texts with calibrated probabilities from a Microcanonical Langevin Ensemble.

    Byte-pair tokens are learned from the training texts, and an attention network classifies the first tokens of each
    text. Methods and attributes are those of `MileClassifier`, with texts for X. Needs the `text` extra.

    Parameters
    ----------
    network
        "att_v1" (token and position embeddings are sampled with the rest), "att_v2" or "att_v3" (embeddings are trained
        first and then fixed), the networks of the paper; or an `Attention` from `mile.networks`.
    vocabulary_size
        Number of tokens, at least 257: padding and every byte. None takes the network's.
    context
        Tokens that are read of each text, from its beginning. None takes the network's, 70.
    embedding
        None trains the embeddings of networks that fix them. A `FixedArray` of shape (vocabulary + context, width) is
        used as it is; its rows must be those of the tokens that these texts give. A path names a file that
        `save_embedding` wrote, which holds embeddings and their tokens.
    pretraining_epochs
        Passes through the training texts that train the embeddings.
    n_chains, preset, warmup_steps, sampling_steps, n_draws, temperature
        As in `MileRegressor`.
    prior
        As in `MileRegressor`; the default is "normal".
    prior_scale
        As in `MileRegressor`. The paper has 0.2 for "att_v1" and "att_v2" and 0.4 for "att_v3".
    learning_rate, weight_decay, batch_size, max_epochs, patience, validation_fraction
        As in `MileRegressor`; the first three also apply when embeddings are trained.
    class_weight
        As in `MileClassifier`.
    sampler, run_dir, store_data, time_limit, backend, address, n_threads, random_state, verbose
        As in `MileRegressor`.

    Attributes
    ----------
    tokenizer_
        The `Tokenizer` that was learned.
    embedding_
        The fixed embeddings, None if they are sampled.

    Examples
    --------
    >>> from mile import MileTextClassifier
    >>> from mile.networks import Attention
    >>> texts = ["a good film", "good fun", "a bad film", "bad and dull"] * 10
    >>> labels = ["like", "like", "dislike", "dislike"] * 10
    >>> small = Attention(vocabulary=280, context=6, width=8, heads=2, attention_width=8, hidden=(4,))
    >>> model = MileTextClassifier(small, preset="quick", n_chains=2, random_state=0).fit(texts, labels)
    >>> model.predict_proba(["really good", "so bad", ""]).shape
    (3, 2)
    """

    _kind = "text classifier"
    # Arguments of the default network of tables.
    hidden_layer_sizes = None
    activation = None
    # Texts have an encoder of their own, and labels the one likelihood.
    likelihood = None
    encoder = None
    columns = None
    # As in the paper: rows are set aside, and chains count the same.
    n_folds = 0
    stacking = "none"
    stop_when = None
    warm_start = False

    def __init__(
        self,
        network: str | Attention = "att_v2",
        *,
        vocabulary_size: int | None = None,
        context: int | None = None,
        embedding: FixedArray | str | Path | None = None,
        pretraining_epochs: int = 2,
        n_chains: int = 12,
        preset: str = DEFAULT,
        warmup_steps: int | None = None,
        sampling_steps: int | None = None,
        n_draws: int | None = None,
        prior: str | Prior = "normal",
        prior_scale: float = 1.0,
        temperature: float = 1.0,
        learning_rate: float = 1e-3,
        weight_decay: float = 1e-3,
        batch_size: int = 32,
        max_epochs: int = 500,
        patience: int = 10,
        validation_fraction: float = 0.125,
        class_weight: ClassWeights | str | None = None,
        sampler: str | Sampler = "mile",
        run_dir: str | Path | None = None,
        store_data: bool = True,
        time_limit: float | None = None,
        backend: str | Backend | None = None,
        address: str | None = None,
        n_threads: int | None = None,
        random_state: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.network = network
        self.vocabulary_size = vocabulary_size
        self.context = context
        self.embedding = embedding
        self.pretraining_epochs = pretraining_epochs
        self.n_chains = n_chains
        self.preset = preset
        self.warmup_steps = warmup_steps
        self.sampling_steps = sampling_steps
        self.n_draws = n_draws
        self.prior = prior
        self.prior_scale = prior_scale
        self.temperature = temperature
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.class_weight = class_weight
        self.sampler = sampler
        self.run_dir = run_dir
        self.store_data = store_data
        self.time_limit = time_limit
        self.backend = backend
        self.address = address
        self.n_threads = n_threads
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: InputLike, y: ResponseLike, sample_weight: WeightsLike | None = None) -> Self:
        """Learn tokens, train the embeddings if the network fixes them, and fit the ensemble.

        Parameters
        ----------
        X
            Texts: a list, an array or a column of strings. An empty one is fine, a missing one is not.
        y
            Labels of any kind, at least two different ones.
        sample_weight
            How many times each text counts; None: once.

        Returns
        -------
        MileTextClassifier
            This estimator, fitted.

        Raises
        ------
        ValueError
            If an argument or the data cannot be used; nothing has been trained then.
        ImportError
            If the `text` extra is not installed.
        FitFailedError
            If every chain failed.
        """
        name = getattr(X, "name", None)
        return self._fit_named(X, y, None if name is None else [str(name)], getattr(y, "name", None), sample_weight)

    def fit_columns(
        self,
        X: InputLike,
        y: ResponseLike,
        columns: Sequence[str],
        target: str | None = None,
        sample_weight: WeightsLike | None = None,
    ) -> Self:
        """Fit texts whose column has a name, as they come from a file; files keep the name.

        Parameters
        ----------
        X, y, sample_weight
            As in `fit`.
        columns
            The name of the column of texts.
        target
            Name of y.
        """
        if len(columns) != 1:
            raise ValueError(f"columns must be the name of the one column of texts; got {len(columns)} names.")
        return self._fit_named(X, y, columns, target, sample_weight)

    def _fit_named(
        self,
        X: InputLike,
        y: ResponseLike,
        columns: Sequence[str] | None,
        target: object,
        sample_weight: WeightsLike | None,
        groups: Labels | None = None,
        order: Labels | None = None,
    ) -> Self:
        self.text_name_ = None if columns is None else str(columns[0])
        return super()._fit_named(X, y, None, target, sample_weight, groups, order)

    def forecast(self, X: InputLike, y: ResponseLike) -> Forecast:
        """Say what `fit` would take in time, memory and disk, apart from training embeddings; fits nothing."""
        return super().forecast(X, y)

    def _untrained_network(self, task: LearningTask, dataset: Dataset, training: Training) -> Attention:
        network = self._sized(task)
        if network.embedding is None and network.pretrained:  # its values do not change the time
            size = (network.vocabulary + network.context, network.width)
            network = replace(network, embedding=FixedArray(np.zeros(size)))
        return network

    def save_embedding(self, path: str | Path) -> None:
        """Write the fixed embeddings and their tokens to a file that `embedding` takes.

        Raises
        ------
        ValueError
            If the embeddings are sampled.
        """
        check_is_fitted(self)
        if self.embedding_ is None:
            raise ValueError("this network samples its embeddings, so there are no fixed ones to save.")
        save_embedding(path, self.embedding_, self.tokenizer_)

    @property
    def tokenizer_(self) -> Tokenizer:
        """The tokens that were learned."""
        return tokenizer_of(self.fit_)

    @property
    def embedding_(self) -> FixedArray | None:
        """The fixed embeddings, None if they are sampled."""
        return cast(Attention, self.fit_.network).embedding

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags = InputTags(string=True, one_d_array=True, two_d_array=False)
        return tags

    def _template(self) -> Attention:
        network = self.network
        if not isinstance(network, Attention):
            network = TEXT_TEMPLATES[check_choice("network", network, TEXT_TEMPLATES, " or an Attention")]
        wanted = {"vocabulary": self.vocabulary_size, "context": self.context}
        network = replace(network, **{name: value for name, value in wanted.items() if value is not None})
        if network.vocabulary < SMALLEST_VOCABULARY:
            raise ValueError(
                f"the vocabulary must have room for padding and every byte, {SMALLEST_VOCABULARY} tokens; got "
                f"{network.vocabulary}."
            )
        return network

    def _configuration(self, n_rows: int = 0) -> Configuration:
        network = self._template()
        check_count("pretraining_epochs", self.pretraining_epochs)
        table = _given_table(self.embedding)
        if table is None and self.embedding is not None:
            check_path("embedding", self.embedding, "None, a FixedArray or the path of a file")
        if self.embedding is not None and network.embedding is not None:
            raise ValueError("the network has an embedding of its own: leave embedding out.")
        if table is not None:
            replace(network, embedding=table)  # which checks its shape
        return super()._configuration(n_rows)

    def _checked(self, X: InputLike, y: ResponseLike, *, numeric: bool) -> CheckedRows:
        texts = check_texts(X)
        y, known = split_missing(y)
        refuse_bad_response(y, numeric)
        labels = np.asarray(column_or_1d(y, warn=True))
        check_consistent_length(texts, labels)
        if len(texts) < 2:
            raise ValueError(f"at least 2 texts are needed to fit; got {len(texts)}.")
        self.n_features_in_ = 1
        network, tokenizer = self._template(), None
        if self.embedding is not None:
            given, tokenizer = _read_given(self.embedding)
            network = replace(network, embedding=given)
        self._given_embedding = network.embedding
        if tokenizer is not None and tokenizer.vocabulary > network.vocabulary:
            raise ValueError(
                f"{self.embedding} has {tokenizer.vocabulary} tokens, but the network has room for "
                f"{network.vocabulary}: give vocabulary_size."
            )
        encoder = TextEncoder(context=network.context, vocabulary=network.vocabulary, tokenizer=tokenizer)
        # With the None numpy keeps every text as it is.
        return CheckedRows(np.array([*texts, None], object)[:-1], labels, encoder, known)

    def _sized(self, task: LearningTask) -> Attention:
        network = self._template()
        if self._given_embedding is not None:
            network = replace(network, embedding=self._given_embedding)
        return network.sized(network.input_shape, task.likelihood.n_outputs)

    def _network(
        self, task: LearningTask, dataset: Dataset, training: Training, seed: int, progress: Progress | None
    ) -> Attention:
        """Return the network, its embeddings trained if they are to be fixed."""
        network, train = self._sized(task), dataset.train
        if network.pretrained and network.embedding is None:
            table = pretrain_embedding(
                train.x,
                train.y,
                task.likelihood.n_outputs,
                network,
                seed=seed,
                weight=train.weight,
                epochs=self.pretraining_epochs,
                training=training,
                progress=progress,
            )
            network = replace(network, embedding=table)
        return network

    def _features(self, X: InputLike) -> np.ndarray:
        return np.array([*check_texts(X), None], object)[:-1]

    def _kept_parameters(self) -> dict[str, object]:
        kept = super()._kept_parameters()
        if self.embedding is not None:  # a path does not belong to the model
            kept["embedding"] = _given_table(self.embedding) or self._given_embedding
        return kept

    def _origin(self, seed: int) -> dict[str, Json]:
        names: Json = None if self.text_name_ is None else [self.text_name_]
        return super()._origin(seed) | {"feature_names": names}


def tokenizer_of(fitted: Fit) -> Tokenizer:
    """Return the tokens of a fit to texts.

    Raises
    ------
    UntrustedFileError
        If it has none, or more than its network knows.
    """
    network, encoder = fitted.network, fitted.encoder
    if not isinstance(network, Attention) or not isinstance(encoder, TextEncoder):
        raise UntrustedFileError("a text classifier must have an attention network and a tokenizer.")
    if network.pretrained and network.embedding is None:
        raise UntrustedFileError("the embedding of the network is missing.")
    if encoder.learned.vocabulary > network.vocabulary:
        raise UntrustedFileError("the tokenizer has more tokens than the network.")
    return encoder.learned


def _given_table(embedding: object) -> FixedArray | None:
    """Return the embeddings if they are given as such, and not as the path of a file."""
    return embedding if isinstance(embedding, FixedArray) else None


def _read_given(embedding: FixedArray | str | Path) -> tuple[FixedArray, Tokenizer | None]:
    table = _given_table(embedding)
    if table is not None:
        return table, None
    path = check_path("embedding", embedding)
    if not path.is_file():
        raise ValueError(f"embedding must be the path of a file; there is none at {str(embedding)!r}.")
    return load_embedding(path), load_tokenizer(path)
