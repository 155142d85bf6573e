"""Tables before a fit: what makes scores too good is found, and what is harmless is not."""

import numpy as np

from mile.diagnose.tables import table_warnings
from mile.features.frame import Frame
from mile.features.table import TableEncoder

N_ROWS = 300
RNG = np.random.default_rng(0)
NOISE = RNG.normal(size=N_ROWS)
SIGNAL = RNG.normal(size=N_ROWS)
CITY = RNG.choice(["Oslo", "Rome", "Bonn"], N_ROWS)
DAYS = np.datetime64("2020-01-01") + np.arange(N_ROWS)


def found(columns, y):
    frame = Frame.of(columns)
    encoder = TableEncoder().fit(frame, y=y)
    return {(warning.kind, warning.column): warning.sentence for warning in table_warnings(encoder, frame, y)}


def test_a_column_that_gives_a_number_away_is_named():
    y = np.exp(3 * SIGNAL)  # of which squares are governed by a few rows
    warnings = found({"noise": NOISE, "the total": 2 * y + 1e-3 * NOISE, "good": SIGNAL + 0.3 * NOISE, "city": CITY}, y)
    assert list(warnings) == [("leakage", "the total")]
    assert "leave it out with --drop 'the total'" in warnings["leakage", "the total"]


def test_a_column_that_gives_a_class_away_is_named():
    sold = (SIGNAL > 1.5).astype(np.int32)
    words = np.where(sold == 1, "closed", RNG.choice(["open", "new"], N_ROWS))
    assert list(found({"noise": NOISE, "state": words, "good": SIGNAL + NOISE}, sold)) == [("leakage", "state")]


def test_a_rare_class_is_no_leak():
    rare = np.zeros(N_ROWS, np.int32)
    rare[:1] = 1
    assert found({"noise": NOISE, "city": CITY}, rare) == {}


def test_rows_that_repeat_are_counted_whatever_their_identifier():
    again = np.r_[np.arange(N_ROWS), np.arange(5)]
    columns = {"noise": NOISE[again], "city": CITY[again], "id": [f"row {row}" for row in range(N_ROWS + 5)]}
    warnings = found(columns, SIGNAL[again])
    assert list(warnings) == [("duplicates", None)]
    assert "5 of 305 rows repeat" in warnings["duplicates", None]


def test_rows_that_repeat_because_the_table_is_coarse_are_fine():
    assert found({"city": CITY, "age": np.round(NOISE, 1)}, (SIGNAL > 0).astype(np.int32)) == {}


def test_rows_in_order_of_time_are_said_only_if_the_target_changes():
    rising = NOISE + np.linspace(0, 2, N_ROWS)
    for name, order in {"day": DAYS, "number": np.arange(N_ROWS) + 17, "back": DAYS[::-1]}.items():
        columns = {"x": SIGNAL, name: order}
        assert list(found(columns, rising)) == [("time order", name)]
        assert found(columns, NOISE) == {}
    assert found({"x": SIGNAL, "day": RNG.permutation(DAYS)}, rising) == {}
    one_after_the_other = (np.arange(N_ROWS) > 150).astype(np.int32)
    assert ("time order", "day") in found({"x": SIGNAL, "day": DAYS}, one_after_the_other)


def test_few_rows_say_nothing():
    assert found({"x": NOISE[:10]}, NOISE[:10]) == {}
