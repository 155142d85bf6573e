"""Embeddings trained before sampling, which then hold them fixed, and the file they can be kept in."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from mile._checks import check_count
from mile._errors import FitFailedError, Status, UntrustedFileError
from mile._progress import Progress, Silent
from mile.ensemble.members import train_members
from mile.ensemble.training import Training
from mile.features.tokens import Tokenizer
from mile.likelihoods import Categorical
from mile.networks import Attention, FixedArray
from mile.padded_rows import pad_rows
from mile.posterior import Posterior
from mile.priors import Normal
from mile.storage import read_tensors, sync_folders, write_tensors

# Random streams of their own: no chain has this number.
_MEMBER = 1 << 31
_NAME, _TOKENS = "embedding", "tokens"
_METADATA = {"format": 1, "kind": _NAME}


def pretrain_embedding(
    ids: Float[np.ndarray, "text position"],
    codes: Int[np.ndarray, " text"],
    n_classes: int,
    network: Attention,
    *,
    seed: int,
    epochs: int = 2,
    training: Training | None = None,
    progress: Progress | None = None,
    weight: Float[np.ndarray, " text"] | None = None,
) -> FixedArray:
    """Train the classifier together with its embeddings, and return the embeddings.

    Parameters
    ----------
    ids
        Token numbers of the training texts.
    codes
        Their classes, from 0.
    n_classes
        Number of classes.
    network
        Whose embeddings are wanted; whether it has some already does not matter.
    seed
        Of starting weights and mini-batches.
    epochs
        Passes through the texts. The default is few, because embeddings that fit the training texts too closely
        cannot be mended by sampling the rest.
    training
        Learning rate, weight decay and size of mini-batches; default: those of the ensemble.
    progress
        Such as `Bars`.
    weight
        How many times each text counts; None: once.

    Returns
    -------
    FixedArray
        Shape (vocabulary + context, width): the rows of tokens, then those of positions.

    Raises
    ------
    FitFailedError
        If the weights do not stay finite.

    Examples
    --------
    >>> import numpy as np
    >>> from mile.networks import Attention
    >>> from mile.ensemble.embeddings import pretrain_embedding
    >>> network = Attention(vocabulary=9, context=4, width=6, heads=1, attention_width=2, hidden=(), pretrained=True)
    >>> ids, codes = np.random.default_rng(0).integers(1, 9, (20, 4)), np.arange(20) % 2
    >>> pretrain_embedding(ids, codes, 2, network, seed=0).shape
    (13, 6)
    """
    training = replace(training or Training(), max_epochs=check_count("epochs", epochs))
    free = network.with_free_embedding().sized(network.input_shape, n_classes)
    ids, codes = np.asarray(ids, np.float32), np.asarray(codes, np.int32)
    posterior = Posterior(
        rows=pad_rows(ids, codes, weight), network=free, likelihood=Categorical(n_classes), prior=Normal().bind(free)
    )
    nothing = pad_rows(ids[:0], codes[:0])
    named = _Named(progress or Silent())
    members = train_members(posterior, nothing, training, [_MEMBER], seed=seed, progress=named)
    if members.status[0] != Status.OK:
        raise FitFailedError(
            f"pretraining the embedding failed: {members.status[0].sentence}. A smaller learning rate may help."
        )
    n_rows = network.vocabulary + network.context
    return FixedArray(members.positions[0, : n_rows * network.width].reshape(n_rows, network.width))


def save_embedding(path: str | Path, embedding: FixedArray, tokenizer: Tokenizer | None = None) -> None:
    """Write an embedding to a file of its own, in the safetensors format.

    Parameters
    ----------
    path
        Such as "embedding.safetensors".
    embedding
        The table.
    tokenizer
        The tokens that its rows stand for: without them it is of use for the same training texts only.
    """
    path = Path(path)
    tokens = {} if tokenizer is None else {_TOKENS: np.frombuffer(tokenizer.to_bytes(), np.uint8)}
    write_tensors(path, {_NAME: embedding.values} | tokens, _METADATA)
    sync_folders([path], path.parent)


def load_embedding(path: str | Path) -> FixedArray:
    """Read the table that `save_embedding` wrote.

    Raises
    ------
    CorruptFileError
        If the file was cut short or altered.
    UntrustedFileError
        If it holds anything else.
    """
    table = _read(path)[_NAME]
    if table.dtype != np.float32 or table.ndim != 2 or 0 in table.shape or not np.isfinite(table).all():
        raise UntrustedFileError(f"{path}: an embedding must be a table of finite numbers in float32.")
    return FixedArray(table)


def load_tokenizer(path: str | Path) -> Tokenizer | None:
    """Read the tokens of a file that `save_embedding` wrote; None if it holds none.

    Raises
    ------
    CorruptFileError
        If the file was cut short or altered.
    UntrustedFileError
        If it holds anything else.
    """
    tokens = _read(path).get(_TOKENS)
    if tokens is None:
        return None
    if tokens.dtype != np.uint8 or tokens.ndim != 1:
        raise UntrustedFileError(f"{path}: tokens must be bytes.")
    return Tokenizer.from_bytes(tokens.tobytes())


def _read(path: str | Path) -> dict[str, np.ndarray]:
    arrays, metadata = read_tensors(Path(path))
    if metadata != _METADATA or not {_NAME} <= set(arrays) <= {_NAME, _TOKENS}:
        raise UntrustedFileError(
            f"{path} does not hold an embedding: write it with mile.ensemble.embeddings.save_embedding."
        )
    return arrays


class _Named:
    """Reports training as a stage of its own, whatever name the trainer gives it."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self.advance, self.note = progress.advance, progress.note
        self.finish, self.say = progress.finish, progress.say

    def start(self, stage: str, total: int, *, unit: str = "steps", n_chains: int = 1) -> None:
        """Begin the stage under its own name."""
        self._progress.start(_NAME, total, unit=unit, n_chains=n_chains)
