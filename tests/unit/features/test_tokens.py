"""Texts as token numbers: what is learned, what is read of a text, and files that cannot be trusted."""

import builtins
import json
import os
import random
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest

from mile._errors import UntrustedFileError
from mile.features.tokens import _LETTERS, PADDING, SMALLEST_VOCABULARY, Tokenizer, check_texts

SYLLABLES = ["ba", "do", "ki", "lu", "me", "nor", "pa", "que", "ri", "sta"]


def some_texts(n_texts, seed=0, n_words=40):
    rng = random.Random(seed)
    words = ["".join(rng.choices(SYLLABLES, k=rng.randint(1, 4))) for _ in range(300)]
    return [" ".join(rng.choices(words, k=rng.randint(1, n_words))) for _ in range(n_texts)]


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train(some_texts(400), 500)


def test_the_vocabulary_is_as_large_as_asked_for_and_frequent_words_are_one_token(tokenizer):
    assert tokenizer.vocabulary == 500
    assert len(tokenizer.merges) == 500 - SMALLEST_VOCABULARY
    text = "nor nor nor"
    trained = Tokenizer.train([text] * 3, 300)
    assert (trained.encode([text], 5)[0, :3] == trained.encode(["nor"], 1)[0, 0]).all()


def test_few_texts_give_fewer_tokens_than_asked_for():
    assert Tokenizer.train(["ab"], 1_000).vocabulary == SMALLEST_VOCABULARY
    assert Tokenizer.train([], 1_000).vocabulary == SMALLEST_VOCABULARY


def test_tokens_are_numbers_of_the_vocabulary_and_padding_fills_the_end(tokenizer):
    numbers = tokenizer.encode(some_texts(50, seed=1), 30)
    assert numbers.dtype == np.float32
    assert numbers.shape == (50, 30)
    assert numbers.min() == PADDING
    assert numbers.max() < tokenizer.vocabulary
    for row in numbers:
        n_tokens = np.count_nonzero(row)
        assert (row[:n_tokens] != PADDING).all()
        assert (row[n_tokens:] == PADDING).all()


@pytest.mark.parametrize("text", ["", "   ", "\n\t", "<br />", "<br/><BR>"])
def test_a_text_without_words_is_padding_alone(tokenizer, text):
    assert not tokenizer.encode([text], 7).any()


def test_no_texts_give_no_rows(tokenizer):
    assert tokenizer.encode([], 7).shape == (0, 7)


def test_line_breaks_case_and_white_space_do_not_matter(tokenizer):
    plain = tokenizer.encode(["a good film ."], 20)
    for text in ("A  Good\tFILM .", "a<br />good<br>film<BR/>.", "\n a good \u00a0 film .  "):
        np.testing.assert_array_equal(tokenizer.encode([text], 20), plain)


@pytest.mark.parametrize(
    "text",
    ["naïve café", "日本語 のテキスト", "😀👍🏽", "<pad> [PAD] 0", "\x00\x01 \x7f", "it's 12,345.67!!", "ə̃ ﬁ ß ǆ"],
)
def test_every_text_can_be_read_back(tokenizer, text):
    numbers = tokenizer.encode([text], 80)[0]
    assert tokenizer.decode(numbers) == " ".join(text.lower().split())
    assert (numbers[: np.count_nonzero(numbers)] != PADDING).all()


def test_half_a_character_is_replaced(tokenizer):
    assert tokenizer.decode(tokenizer.encode(["a \ud800 b"], 20)[0]) == "a ? b"


def test_the_first_tokens_are_those_of_the_whole_text(tokenizer):
    rng = random.Random(2)
    pieces = [*SYLLABLES, " ", " ", "7", "!", "日", "é", "x" * 40, "<br />", "\u180e", "\u1e9e", "İ" * 10]
    for _ in range(150):
        text = "".join(rng.choices(pieces, k=rng.randint(0, 300)))
        whole = tokenizer.encode([text], 20_000)[0]
        for context in (1, 2, 7, 30):
            np.testing.assert_array_equal(tokenizer.encode([text], context)[0], whole[:context])


@pytest.mark.parametrize("text", ["word " * 250_000, "x" * 1_000_000, " " * 1_000_000 + "end", "<br />" * 170_000])
def test_a_text_of_a_megabyte_is_read_in_no_time(tokenizer, text):
    tokenizer.encode(["warm"], 70)
    began = time.perf_counter()
    numbers = tokenizer.encode([text], 70)
    assert time.perf_counter() - began < 2.0  # 0.02 s; a busy machine takes longer
    assert numbers.shape == (1, 70)


def test_learning_from_a_word_of_a_megabyte_is_quick():
    began = time.perf_counter()
    Tokenizer.train(["y" * 1_000_000, "z" * 10], 400)
    assert time.perf_counter() - began < 20.0


def test_the_same_texts_give_the_same_tokens_on_any_number_of_threads(tokenizer):
    script = (
        "import hashlib, sys; from test_tokens import some_texts; from mile.features.tokens import Tokenizer\n"
        "learned = Tokenizer.train(some_texts(400), 500)\n"
        "print(hashlib.sha256(learned.to_bytes() + learned.encode(some_texts(99, 3), 25).tobytes()).hexdigest())"
    )
    folder = os.path.dirname(__file__)
    found = set()
    for threads in ("1", "4"):
        variables = {**os.environ, "RAYON_NUM_THREADS": threads, "PYTHONPATH": folder}
        found.add(subprocess.run([sys.executable, "-c", script], env=variables, check=True, capture_output=True).stdout)
    assert len(found) == 1
    assert Tokenizer.train(some_texts(400), 500) == tokenizer


def test_bytes_and_back_is_the_same_tokenizer(tokenizer):
    again = Tokenizer.from_bytes(tokenizer.to_bytes())
    assert again == tokenizer
    assert hash(again) == hash(tokenizer)
    texts = some_texts(20, seed=4)
    np.testing.assert_array_equal(again.encode(texts, 30), tokenizer.encode(texts, 30))


def test_letters_are_those_of_the_library():
    from tokenizers import pre_tokenizers

    assert sorted(_LETTERS) == sorted(pre_tokenizers.ByteLevel.alphabet())
    for byte in (0, 10, 32, 65, 127):
        split = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(chr(byte))
        assert split[0][0] == _LETTERS[byte]


GOOD = '{"format":1,"merges":[[98,99],[257,98]]}'


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"format":1}',
        b'{"format":2,"merges":[]}',
        b'{"format":true,"merges":[]}',
        b'{"format":1,"merges":{}}',
        b'{"format":1,"merges":[1]}',
        b'{"format":1,"merges":[[1]]}',
        b'{"format":1,"merges":[[1,2,3]]}',
        b'{"format":1,"merges":[["a","b"]]}',
        b'{"format":1,"merges":[[1.0,2]]}',
        b'{"format":1,"merges":[[true,2]]}',
        b'{"format":1,"merges":[[[1],2]]}',
        b'{"format":1,"merges":[[0,1]]}',
        b'{"format":1,"merges":[[-1,1]]}',
        b'{"format":1,"merges":[[1,257]]}',
        b'{"format":1,"merges":[[1,1' + b"0" * 5_000 + b"]]}",
        b'{"format":1,"merges":[[98,99],[98,99]]}',
        b'{"format":1,"merges":[],"merges":[]}',
        b'{"format":1,"merges":[],"model":"x"}',
        b'{"format":1, "merges":[]}',
        b'{"format":1,"merges":[]}' + b" " * (1 << 22),
        json.dumps({"format": 1, "merges": [[1, 1]] + [[257 + n, 257 + n] for n in range(20)]})
        .replace(" ", "")
        .encode(),
    ],
)
def test_bytes_that_are_no_tokenizer_are_refused(data):
    assert Tokenizer.from_bytes(GOOD.encode()).tokens[-2:] == (b"ab", b"aba")
    with pytest.raises(UntrustedFileError):
        Tokenizer.from_bytes(data)


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (None, "missing"),
        (float("nan"), "missing"),
        (pd.NA, "missing"),
        (pd.NaT, "missing"),
        (b"bytes", "Decode"),
        (3, "'3' of type int"),
        (["a"], "type list"),
        (np.array([1, 2]), "type ndarray"),
    ],
)
def test_an_entry_that_is_no_text_is_named(tokenizer, entry, words):
    texts = ["fine", "", entry, None]
    for use in (lambda: tokenizer.encode(texts, 5), lambda: Tokenizer.train(texts, 300)):
        with pytest.raises(ValueError, match=f"row 2 has.*{words}|row 2 has .*{words}"):
            use()


@pytest.mark.parametrize("texts", ["one text", b"bytes", 3, None, np.array([["a", "b"]]), pd.DataFrame({"t": ["a"]})])
def test_what_is_no_list_of_texts_is_refused(texts):
    with pytest.raises(ValueError, match="texts must be a list"):
        check_texts(texts)


@pytest.mark.parametrize("kind", [list, tuple, np.array, pd.Series, lambda t: np.array(t, object), iter])
def test_lists_arrays_and_columns_of_texts_are_taken(tokenizer, kind):
    texts = ["ba do", "", "ki"]
    np.testing.assert_array_equal(tokenizer.encode(kind(texts), 6), tokenizer.encode(texts, 6))


@pytest.mark.parametrize("vocabulary", [0, 256, 2.5, None])
def test_a_vocabulary_without_room_for_the_bytes_is_refused(vocabulary):
    with pytest.raises(ValueError, match="vocabulary must be an integer of at least 257"):
        Tokenizer.train(["a"], vocabulary)


def test_without_the_package_the_message_says_what_to_install(monkeypatch, tokenizer):
    usual = builtins.__import__

    def without(name, *arguments, **options):
        if name.partition(".")[0] == "tokenizers":
            raise ImportError(name)
        return usual(name, *arguments, **options)

    data = tokenizer.to_bytes()
    monkeypatch.setattr(builtins, "__import__", without)
    again = Tokenizer.from_bytes(data)  # needs nothing
    for use in (lambda: again.encode(["a"], 3), lambda: Tokenizer.train(["a"], 300)):
        with pytest.raises(ImportError, match=r"pip install 'mile-bnn\[text\]'"):
            use()
