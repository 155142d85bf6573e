"""Texts as token numbers: byte-pair encoding that is learned from texts and kept as plain data."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from types import ModuleType
from typing import Protocol, Self, cast

import numpy as np
from jaxtyping import Float, Int

from mile import _registry
from mile._checks import check_count, check_tuple
from mile._schema import Count, Fields, Several, Tensor, Unchecked, refused, require
from mile.features.accepted import InputLike
from mile.features.base import AbstractFeatureEncoder, Encoded, Plain, Tensors

PADDING = 0  # fills up texts at their end; no text contains it
SMALLEST_VOCABULARY = 257  # padding and every byte
_N_BYTES = 256
_FORMAT = 1
_LONGEST_WORD = 32  # characters; what is longer is cut before tokens are formed
_PATTERN = " ?" + "| ?".join(f"{kind}{{1,{_LONGEST_WORD}}}" for kind in (r"\p{L}", r"\p{N}", r"[^ \p{L}\p{N}]"))
_LONGEST_TOKEN = 4 * (_LONGEST_WORD + 1)  # bytes: tokens do not cross words, and UTF-8 takes at most 4 a character
_FEWEST_PAIRS = 2  # a pair that occurs once says nothing about other texts
_MOST_MERGES = 250_000  # the largest vocabularies in use, those of multilingual models, have as many
_LONGEST_FILE = 1 << 22  # bytes of JSON
_FILE = Fields(dict, {"format": Count(_FORMAT, _FORMAT), "merges": Several(Unchecked())})
_BATCH = 1_000  # texts that are encoded at a time
_LINE_BREAK = re.compile(r"<br\s*/?>")
_MISSING = "needs the tokenizers package, which is not installed: pip install 'mile-bnn[text]'."


class Encoding(Protocol):
    """One text, as the tokenizers package encodes it."""

    @property
    def ids(self) -> list[int]:
        """Numbers of the tokens."""
        ...


class BatchEncoder(Protocol):
    """What is used of the tokenizers package, which is optional."""

    def encode_batch(self, texts: list[str], /) -> Sequence[Encoding]:
        """Encode texts on all cores."""
        ...


@dataclass(frozen=True, kw_only=True)
class Tokenizer:
    """Byte-pair encoding with a fixed preparation of texts.

    Texts are put in lower case, HTML line breaks become spaces, runs of white space become one space. Lower case,
    because vocabularies of 1,000 to 10,000 tokens have no room for a second spelling of each word. Token 0 is padding,
    1 to 256 are the bytes, so every character can be written, and the others are pairs of earlier tokens.

    Attributes
    ----------
    merges
        The pairs in the order in which they were learned.

    Examples
    --------
    >>> from mile.features.tokens import Tokenizer
    >>> tokenizer = Tokenizer.train(["a good film", "a good play", "not good"], 270)
    >>> tokenizer.encode(["Good film"], 6).shape
    (1, 6)
    >>> Tokenizer.from_bytes(tokenizer.to_bytes()) == tokenizer
    True
    """

    merges: tuple[tuple[int, int], ...]

    def __post_init__(self) -> None:
        if len(check_tuple("merges", self.merges, "pairs of tokens")) > _MOST_MERGES:
            raise ValueError(f"merges must be a tuple of at most {_MOST_MERGES:,} pairs.")
        if len(set(self.merges)) != len(self.merges):
            raise ValueError("a pair of tokens occurs twice among the merges.")
        _ = self.tokens  # must be possible

    @classmethod
    def train(cls, texts: Iterable[str], vocabulary: int) -> "Tokenizer":
        """Learn the most frequent pairs of tokens; the same texts give the same tokens, on any number of cores.

        Parameters
        ----------
        texts
            Training texts.
        vocabulary
            Largest number of tokens, with padding and the 256 bytes; few texts may give fewer.

        Raises
        ------
        ValueError
            If an entry is not a text, or the vocabulary has no room for the bytes.
        ImportError
            If the tokenizers package is not installed.
        """
        vocabulary = check_count("vocabulary", vocabulary, SMALLEST_VOCABULARY)
        texts = check_texts(texts)
        library = _library()
        learner = library.Tokenizer(library.models.BPE())
        learner.pre_tokenizer = _splitter(library)
        trainer = library.trainers.BpeTrainer(
            vocab_size=vocabulary - 1,
            min_frequency=_FEWEST_PAIRS,
            show_progress=False,
            initial_alphabet=list(_LETTERS),
        )
        learner.train_from_iterator((_writable(_plain(text)) for text in texts), trainer)
        numbers = {letter: 1 + byte for byte, letter in enumerate(_LETTERS)}
        merges = []
        for left, right in json.loads(learner.to_str())["model"]["merges"]:
            merges.append((numbers[left], numbers[right]))
            numbers.setdefault(left + right, 1 + len(numbers))
        return cls(merges=tuple(merges))

    @cached_property
    def tokens(self) -> tuple[bytes, ...]:
        """The bytes of each token; none for padding."""
        found = [b"", *(bytes([byte]) for byte in range(_N_BYTES))]
        known = set(found)
        for pair in self.merges:
            if [type(one) for one in pair] != [int, int] or not all(PADDING < one < len(found) for one in pair):
                raise ValueError(f"a merge must be a pair of earlier tokens; got {str(pair)[:80]}.")
            token = found[pair[0]] + found[pair[1]]
            if len(token) > _LONGEST_TOKEN:
                raise ValueError(f"a token can stand for at most {_LONGEST_TOKEN} bytes; one has {len(token)}.")
            if token not in known:  # two pairs can spell the same
                known.add(token)
                found.append(token)
        return tuple(found)

    @property
    def vocabulary(self) -> int:
        """Number of tokens, padding included."""
        return len(self.tokens)

    def encode(self, texts: Iterable[str], context: int) -> Float[np.ndarray, "text position"]:
        """Return the first `context` tokens of each text, filled up with padding at the end.

        What follows is left out: the beginning of a text is read, not its end. An empty text is padding alone.

        Raises
        ------
        ValueError
            If an entry is not a text; the message names its row.
        ImportError
            If the tokenizers package is not installed.
        """
        context = check_count("context", context)
        texts = check_texts(texts)
        numbers = np.full((len(texts), context), PADDING, np.float32)
        for start in range(0, len(texts), _BATCH):
            beginnings = [self._beginning(text, context) for text in texts[start : start + _BATCH]]
            for row, encoding in enumerate(self._encoder.encode_batch(beginnings), start):
                first = encoding.ids[:context]
                numbers[row, : len(first)] = first
        return numbers

    def decode(self, numbers: Iterable[float]) -> str:
        """Return the prepared text that tokens stand for; bytes that are not UTF-8 become the replacement character."""
        return b"".join(self.tokens[int(number)] for number in numbers).decode("utf-8", "replace").strip()

    def to_bytes(self) -> bytes:
        """Return the tokenizer as JSON."""
        return json.dumps({"format": _FORMAT, "merges": self.merges}, separators=(",", ":"), sort_keys=True).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> "Tokenizer":
        """Undo `to_bytes`; only the pairs are read, the rest is this code.

        Raises
        ------
        UntrustedFileError
            If the bytes are anything else.
        """
        is_short = len(data) <= _LONGEST_FILE
        require(is_short, f"a tokenizer takes at most {_LONGEST_FILE:,} bytes; these are {len(data):,}.")
        with refused("not a tokenizer"):
            found = _FILE.read(json.loads(data), "not a tokenizer")
            tokenizer = cls(merges=tuple(tuple(pair) for pair in found["merges"]))
        require(tokenizer.to_bytes() == data, "not a tokenizer: it was not written by mile.")
        return tokenizer

    @cached_property
    def _longest(self) -> int:
        return max(map(len, self.tokens))

    def _beginning(self, text: str, context: int) -> str:
        """Return a prefix of the prepared text that has the same first `context` tokens.

        Words are matched from left to right and have at most `_LONGEST_WORD` characters and a space, so a cut changes
        at most the word that it falls in, and that begins no more than so many characters before. All words before
        it keep their tokens, and they hold context times the longest token in bytes, at least one for each character:
        not fewer than `context` tokens.
        """
        return _writable(_plain(text)[: context * self._longest + _LONGEST_WORD + 1])

    @cached_property
    def _encoder(self) -> BatchEncoder:
        library = _library()
        spelled = ["".join(_LETTERS[byte] for byte in token) for token in self.tokens]
        numbers = {token: number for number, token in enumerate(spelled) if number != PADDING}
        merges = [(spelled[left], spelled[right]) for left, right in self.merges]
        encoder = library.Tokenizer(library.models.BPE(numbers, merges))
        encoder.pre_tokenizer = _splitter(library)
        return encoder


@_registry.encoder("tokens")
@dataclass(frozen=True, kw_only=True, eq=False)
class TextEncoder(AbstractFeatureEncoder):
    """Texts as the numbers of their first tokens.

    Parameters
    ----------
    context
        Number of tokens to read of each text.
    vocabulary
        Largest number of tokens to learn.
    tokenizer
        The tokens; None learns them from the training texts.
    """

    context: int
    vocabulary: int
    tokenizer: Tokenizer | None = None

    def fit(
        self,
        x: np.ndarray,
        rows: Int[np.ndarray, " chosen"] | None = None,
        weight: Float[np.ndarray, " row"] | None = None,
    ) -> Self:
        """Return an encoder with the tokens of the given texts; weights do not change them."""
        if self.tokenizer is not None:
            return self
        return replace(self, tokenizer=Tokenizer.train(x if rows is None else x[rows], self.vocabulary))

    def transform(self, x: np.ndarray, rows: Int[np.ndarray, " chosen"] | None = None) -> Encoded:
        """Return token numbers, of the given texts (default: all)."""
        return self.learned.encode(x if rows is None else x[rows], self.context)

    @property
    def learned(self) -> Tokenizer:
        """The tokens."""
        if self.tokenizer is None:
            raise ValueError("the tokens have not been learned yet: call fit first.")
        return self.tokenizer

    def n_columns(self, n_features: int) -> int | None:
        """Return one column: that of the texts."""
        return 1

    def tensors(self) -> dict[str, np.ndarray]:
        """Return the tokens as bytes."""
        return {"tokenizer": np.frombuffer(self.learned.to_bytes(), np.uint8)}

    def settings(self) -> dict[str, Plain]:
        """Return both sizes."""
        return {"context": self.context, "vocabulary": self.vocabulary}

    @classmethod
    def restore(cls, tensors: Tensors, settings: Mapping[str, Plain], n_features: int) -> Self:
        """Return the encoder that a file has kept."""
        found = Fields(dict, {"context": Count(), "vocabulary": Count()}).read(settings)
        context, vocabulary = found["context"], found["vocabulary"]
        data = Fields(dict, {"tokenizer": Tensor("uint8", (None,))}).read(tensors)["tokenizer"]
        tokenizer = _read_tokenizer(data.tobytes())
        fits = context == n_features and tokenizer.vocabulary <= vocabulary
        require(fits, "the tokenizer does not fit the network.")
        return cls(context=context, vocabulary=vocabulary, tokenizer=tokenizer)


@lru_cache(maxsize=8)
def _read_tokenizer(data: bytes) -> Tokenizer:
    return Tokenizer.from_bytes(data)


def check_texts(texts: InputLike) -> Sequence[str]:
    """Return a list of texts.

    Raises
    ------
    ValueError
        If it is one text, a table, or an entry is not a text; the message names its row.
    """
    if isinstance(texts, str | bytes):
        raise ValueError("texts must be a list of texts; got one. Put it in a list: [text].")
    if getattr(texts, "ndim", 1) != 1:
        shape = np.asarray(texts).shape
        raise ValueError(
            f"texts must be a list or a single column of texts; got shape {shape}. Choose the column, such as "
            'table["text"].'
        )
    try:
        found = list(cast(Iterable[str], texts))
    except TypeError:
        raise ValueError(f"texts must be a list of texts; got {type(texts).__name__}.") from None
    for row, text in enumerate(found):
        if not isinstance(text, str):
            what = "a missing value" if _is_missing(text) else f"{str(text)[:40]!r} of type {type(text).__name__}"
            advice = "Decode bytes first." if isinstance(text, bytes) else "Remove such rows, or put '' there."
            raise ValueError(f"every entry must be a text, but row {row} has {what}. {advice}")
    return found


def _is_missing(value: object) -> bool:
    try:
        return value is None or bool(value != value)
    except (TypeError, ValueError):  # the missing value of pandas does not compare, and arrays have no truth
        return type(value).__name__ == "NAType"


def _plain(text: str) -> str:
    """Prepare a text: a space and then words in lower case, one space between them; nothing if there are none."""
    words = _LINE_BREAK.sub(" ", text.lower()).split()
    return " ".join(["", *words])


def _writable(text: str) -> str:
    """Replace lone surrogates, which Python's strings can hold and UTF-8 cannot."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _library() -> ModuleType:
    try:
        import tokenizers
    except ImportError as error:
        raise ImportError(f"working with texts {_MISSING}") from error
    return tokenizers


def _splitter(library: ModuleType) -> object:
    """Return the splitter of prepared texts into words of letters, digits or other signs, and then bytes."""
    steps = library.pre_tokenizers
    words = steps.Split(library.Regex(_PATTERN), "isolated")
    return steps.Sequence([words, steps.ByteLevel(add_prefix_space=False, use_regex=False)])


def _byte_letters() -> str:
    """Return the letter that the library writes for each byte: itself if it is visible, else the next from U+0100."""
    visible = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    others = iter(range(_N_BYTES, 2 * _N_BYTES))
    return "".join(chr(byte if byte in visible else next(others)) for byte in range(_N_BYTES))


_LETTERS = _byte_letters()
