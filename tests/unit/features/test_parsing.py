"""Texts: what counts as missing, as a number, as yes or no, and as a date."""

import numpy as np
import pytest

from mile.features import parsing
from mile.features.frame import Frame


def test_words_for_an_empty_cell_are_missing():
    cells = ["", " ", "NA", "NaN", "nan", "null", "None", "?", "N/A", "0", "none at all"]
    assert Frame.of({"x": cells})["x"].missing().tolist() == [True] * 9 + [False] * 2


@pytest.mark.parametrize("text", ["3.5", "7", "-1e-3", ".5", "5.", "+0", "1E5", "0.10", "inf", "-Infinity"])
def test_numbers_are_read(text):
    assert parsing.are_numbers([text])
    assert parsing.read_numbers([text])[0] == float(text)


@pytest.mark.parametrize("text", ["", "1_000", "1,5", "0x1f", "٣", "1 2", "e5", ".", "$3", "3%", "nan"])
def test_codes_and_other_texts_are_no_numbers(text):
    assert not parsing.are_numbers(["1", text])
    assert np.isnan(parsing.read_numbers([text])[0])


def test_digits_after_a_zero_are_a_code_unless_a_number_is_asked_for():
    assert not parsing.are_numbers(["12", "007"])
    assert parsing.read_numbers(["007", "-01.5"]).tolist() == [7, -1.5]


def test_both_words_of_one_pair_are_flags():
    for pair in (["yes", "no"], ["No", "YES", "no"], ["true", "false"], ["T", "f"], ["y", "n"]):
        assert parsing.are_flags(pair)
    for texts in (["yes"], ["f", "m"], ["yes", "false"], ["yes", "no", "maybe"], ["0", "1"], []):
        assert not parsing.are_flags(texts)
    assert parsing.read_flags(["Y", "false", "1", "0", "maybe"]) == ["yes", "no", "yes", "no", ""]
    assert parsing.read_numbers(["yes", "False"]).tolist() == [1, 0]


DATES = {
    "2024-02-29": parsing.ISO,
    "2024-02-29T13:30": parsing.ISO,
    "2024-02-29 13:30:00.25": parsing.ISO,
    "2024-02": "%Y-%m",
    "2024/02/29": "%Y/%m/%d",
    "29.02.2024 13:30": "%d.%m.%Y %H:%M",
    "02/29/2024": "%m/%d/%Y",
    "29/02/2024": "%d/%m/%Y",
    "Feb 29, 2024": "%b %d, %Y",
    "29-Feb-2024": "%d-%b-%Y",
    "02/29/2024 01:30 PM": "%m/%d/%Y %I:%M %p",
}


@pytest.mark.parametrize("text", DATES)
def test_dates_are_recognized_in_their_format(text):
    assert parsing.date_format([text]) == DATES[text]
    time, clock = parsing.read_dates([text, "nonsense"], DATES[text])
    day = "2024-02-01" if text == "2024-02" else "2024-02-29"
    assert time.astype("M8[D]").astype(str).tolist() == [day, "NaT"]
    np.testing.assert_array_equal(time, clock)


def test_the_month_stands_first_unless_some_day_is_above_twelve():
    assert parsing.date_format(["01/02/2024", "11/12/2024"]) == "%m/%d/%Y"
    assert parsing.date_format(["01/02/2024", "13/12/2024"]) == "%d/%m/%Y"
    assert parsing.date_format(["13/02/2024", "02/13/2024"]) is None


@pytest.mark.parametrize(
    "text", ["2023-02-29", "2024-13-01", "yesterday", "20240229", "2024", "12:30", "1.5.6.7", "0001"]
)
def test_other_texts_are_no_dates(text):
    assert parsing.date_format([text]) is None


def test_plain_digits_are_dates_if_the_user_says_so():
    assert parsing.date_format(["20240229"], is_asked=True) == "%Y%m%d"
    assert parsing.date_format(["2024"], is_asked=True) == "%Y"
    assert parsing.date_format([]) is None


def test_offsets_give_the_time_in_utc_and_the_local_clock():
    time, clock = parsing.read_dates(
        ["2024-01-01T01:00:00+02:00", "2024-01-01T01:00:00Z", "0001-01-01T00:00+05:00"], parsing.ISO
    )
    assert time[:2].astype("M8[h]").astype(str).tolist() == ["2023-12-31T23", "2024-01-01T01"]
    assert clock[0] == np.datetime64("2024-01-01T01")
    assert np.isnat(time[2])  # before the calendar begins


def test_numbers_are_spelled_alike_in_all_types():
    assert {parsing.spelled(number) for number in (3, 3.0, np.float32(3), np.float64(3))} == {"3"}
    assert parsing.spelled(np.float32(0.1)) == parsing.spelled(0.1) == "0.1"
    assert parsing.spelled(1e22) == "1" + "0" * 22
