"""Kinds of columns: the features of each in closed form, and the rule that says what a column is."""

import numpy as np
import pandas as pd
import pytest
from sklearn.preprocessing import TargetEncoder

from mile.features.columns import Counts, Learning
from mile.features.frame import Frame
from mile.features.kinds import learn_column
from mile.features.target_means import cross_fitted_means, shrunken_means, targets_of


def learned(cells, asked=None, weight=None, y=None, **options):
    values = Frame.of({"x": cells})["x"]
    weight = np.ones(len(values)) if weight is None else np.asarray(weight, float)
    return learn_column(values, Learning(weight=weight, targets=targets_of(y), **options), asked)


def written(column, cells):
    """Return features and counts."""
    values = column.read(Frame.of({"x": cells})["x"])
    out = np.full((len(values), column.n_features), np.nan, np.float32)
    return out, column.write_into(values, out, slice(None))


def reason(cells, asked=None, **options):
    report = learned(cells, asked, **options).describe("x")
    assert (report.kind, report.treatment) == ("ignored", "left out")
    return report.reason


class TestNumbers:
    CELLS = (1.0, 2.0, 3.0, 4.0, 100.0)

    def test_are_scaled_by_quartiles_and_clipped_smoothly(self):
        column = learned(self.CELLS)
        out, counts = written(column, [3.0, 4.0, 1e308, -1e308])
        scaled = (4 - 3) / (4 - 2)
        assert out[:2, 0] == pytest.approx([0, scaled / np.sqrt(1 + (scaled / 3) ** 2)])
        assert out[2:, 0] == pytest.approx([3, -3])
        assert counts == Counts()
        assert column.describe("x").values == "1 to 100"

    def test_are_scaled_by_their_spread_where_the_quartiles_are_one_number(self):
        column = learned([0.0] * 9 + [10.0])
        scaled = 10 / np.std([0.0] * 9 + [10.0])
        assert written(column, [10.0])[0][0, 0] == pytest.approx(scaled / np.sqrt(1 + (scaled / 3) ** 2))

    def test_of_a_gain_that_few_rows_have_keep_its_size_beside_the_largest(self):
        gains = np.zeros(1_000)
        gains[:50], gains[50] = 7_000.0, 100_000.0
        out, _ = written(learned(gains), [0.0, 7_000.0, 100_000.0])
        assert out[0, 0] == 0
        assert 1.0 < out[1, 0] < out[2, 0] <= 3.0

    def test_are_standardized_if_asked_for(self):
        column = learned(self.CELLS, squash=False)
        expected = (np.array(self.CELLS) - np.mean(self.CELLS)) / np.std(self.CELLS)
        assert written(column, self.CELLS)[0][:, 0] == pytest.approx(expected, abs=1e-6)
        assert np.abs(written(column, [1e300, -1e300])[0]).max() == 1e6

    @pytest.mark.parametrize("squash", [True, False])
    def test_that_are_huge_tiny_or_wide_stay_finite(self, squash):
        for cells in (
            [-1.7e308, 0.0, 1.7e308] * 3,
            [5e-324, 0.0, 1e-320],
            [2**63 - 1, -(2**63), 0],
            [1e300, 2e300, 3.0],
        ):
            assert np.isfinite(written(learned(cells, squash=squash), cells)[0]).all()

    def test_that_are_missing_get_the_median_and_an_indicator(self):
        column = learned([1.0, 2.0, np.nan, 3.0])
        out, counts = written(column, [np.nan, 2.0, np.inf])
        assert column.labels == ("", " (missing)")
        assert out[:, 0].tolist() == [0, 0, 0]
        spread = np.sqrt(0.25 * 0.75)
        assert out[:, 1] == pytest.approx([0.75 / spread, -0.25 / spread, 0.75 / spread])
        assert counts == Counts(infinite=1)
        assert column.describe("x").missing == 0.25

    def test_that_are_missing_at_prediction_only_are_filled_and_counted(self):
        out, counts = written(learned(self.CELLS), [None, 3.0, -np.inf])
        assert out[:, 0].tolist() == [0, 0, 0]
        assert counts == Counts(filled=1, infinite=1)

    def test_of_one_value_leave_the_indicator_alone(self):
        column = learned([7.0, None, 7.0, None])
        assert column.labels == (" (missing)",)
        np.testing.assert_array_equal(written(column, [7.0, 99.0])[0], written(column, [7.0, 7.0])[0])

    def test_count_by_weight_as_rows_do(self):
        weight = np.array([1, 2, 3, 1, 2, 1])
        cells = np.array([4.0, 1.0, np.nan, 9.0, 2.0, 5.0])
        for squash in (True, False):
            one = learned(cells, weight=weight, squash=squash).fields()
            other = learned(np.repeat(cells, weight), squash=squash).fields()
            assert {name: pytest.approx(value) for name, value in one.items()} == other

    def test_of_a_rare_gap_have_a_bounded_indicator(self):
        assert np.abs(written(learned([None, *range(10_000)]), [None, 1])[0]).max() <= 3

    def test_that_run_are_kept_and_said_to_be_running(self):
        rng = np.random.default_rng(0)
        rows = np.sort(rng.permutation(1_000)[:875])
        for cells in (range(1, 101), rows, rng.permutation(rows), 1_000 + 7 * np.arange(50)):
            column = learned(cells)
            assert column.describe("x").is_running
            assert column.describe("x").treatment.startswith("running number: scaled")
            assert column.n_features == 1
        for cells in (range(10), rng.integers(0, 50, 100), rng.normal(size=100), rng.permutation(10_000)[:100]):
            assert not learned(cells).describe("x").is_running


class TestCategories:
    def test_have_an_indicator_for_each_level_that_is_centered_and_bounded(self):
        column = learned(list("aaaaabbbbbccccc") * 2)
        out, counts = written(column, ["a", "b", "new", None])
        assert column.labels == (" = a", " = b", " = c")
        share, spread = 1 / 3, np.sqrt(2) / 3
        assert out[0] == pytest.approx([(1 - share) / spread, -share / spread, -share / spread])
        assert not out[2:].any()  # nothing was pooled: an average row
        assert counts == Counts(filled=1, unseen=1)
        rare = learned(["a"] * 100_000 + ["b"] * 5 + ["c"] * 5)
        assert np.abs(rare.tensors()["table"]).max() <= 3.0001

    def test_of_two_levels_are_one_feature(self):
        column = learned(["m", "f"] * 10)
        assert column.labels == (" = m",)
        assert written(column, ["m", "f"])[0].tolist() == [[1], [-1]]

    def test_pool_rare_levels_and_those_that_are_new(self):
        column = learned(list("aaaaabbbbbcdd"))
        out, counts = written(column, ["c", "d", "new", "a"])
        assert column.labels == (" = a", " = b", " (other)")
        assert (out[:3] == out[0]).all()
        assert counts == Counts(unseen=1)
        assert "rare ones pooled" in column.describe("x").values

    def test_have_a_level_for_missing_values(self):
        column = learned(["a", None, "b"] * 5)
        out, counts = written(column, ["a", "NA", None])
        assert column.labels == (" = a", " = b", " (missing)")
        assert (out[1] == out[2]).all()
        assert out[1].argmax() == 2
        assert counts == Counts()

    def test_are_the_same_for_numbers_and_their_texts(self):
        column = learned([10, 20, 30] * 5, "category")
        assert column.labels == (" = 10", " = 20", " = 30")
        for cells in ([30, 10], [30.0, 10.0], ["30", "10 "]):
            np.testing.assert_array_equal(written(column, cells)[0], column.tensors()["table"][[2, 0]])

    def test_of_yes_and_no_take_every_spelling(self):
        column = learned(["Yes", "No", "no"])
        assert column.describe("x").kind == "boolean"
        assert column.labels == (" = yes",)
        yes, no = written(column, [True, False])[0]
        assert yes > no
        for cells in (["YES", "n"], [1, 0], [1.0, 0.0], ["true", "F"]):
            np.testing.assert_array_equal(written(column, cells)[0], [yes, no])

    def test_of_many_levels_without_a_response_keep_the_most_frequent(self):
        cells = [f"l{place:02d}" for place in range(50) for _ in range(10 + (place == 40))]
        column = learned(cells, most_levels=8)
        assert column.labels == (*(f" = l{place:02d}" for place in (*range(7), 40)), " (other)")


class TestCategoriesOfManyLevels:
    LEVELS = tuple(f"l{place:02d}" for place in range(40))

    def table(self, n_rows=4_000):
        rng = np.random.default_rng(1)
        codes = rng.integers(0, 40, n_rows)
        effect = np.linspace(-1, 1, 40)[rng.permutation(40)]
        return [self.LEVELS[code] for code in codes], codes, effect[codes] + rng.normal(size=n_rows), effect

    def test_have_means_of_the_response_and_a_frequency(self):
        cells, _, y, effect = self.table()
        column = learned(cells, y=y)
        assert column.labels == (" (mean of y)", " (frequency)")
        features = written(column, self.LEVELS)[0]
        assert np.corrcoef(features[:, 0], effect)[0, 1] > 0.98
        encoded = written(column, cells)[0]
        assert encoded.mean(axis=0) == pytest.approx([0, 0], abs=0.05)
        assert encoded.std(axis=0) == pytest.approx([1, 1], abs=0.15)

    def test_have_a_mean_for_each_class(self):
        cells, codes, _, _ = self.table()
        assert learned(cells, y=codes % 2).n_features == 2
        assert learned(cells, y=codes % 3).labels[2] == " (mean of y 2)"
        assert learned(cells, y=codes % 11).labels[0].startswith(" = ")

    def test_do_not_show_a_training_row_its_own_response(self):
        """Levels say nothing here, so means of the row's own level would be all that correlates with y."""
        rng = np.random.default_rng(2)
        codes, y = np.repeat(np.arange(200), 5), rng.normal(size=1_000)
        cells = [f"l{code}" for code in rng.permutation(codes)]
        values = Frame.of({"x": cells})["x"]
        learning = Learning(weight=np.ones(1_000), targets=targets_of(y))
        column = learn_column(values, learning)
        plain, crossed = (np.empty((1_000, 2), np.float32) for _ in range(2))
        column.write_into(column.read(values), plain, slice(None))
        column.write_training(column.read(values), crossed, learning)
        assert np.corrcoef(plain[:, 0], y)[0, 1] > 0.3
        assert np.corrcoef(crossed[:, 0], y)[0, 1] < 0.1  # 3 standard errors
        np.testing.assert_array_equal(plain[:, 1], crossed[:, 1])

    def test_shrink_as_scikit_learn_does_for_the_same_smoothing(self):
        _, codes, y, _ = self.table(500)
        counts = np.bincount(codes)
        within = sum(np.sum((y[codes == code] - y[codes == code].mean()) ** 2) for code in range(40)) / (500 - 40)
        among = sum(np.sum(codes == code) * (y[codes == code].mean() - y.mean()) ** 2 for code in range(40))
        between = (among - 39 * within) / (500 - np.sum(counts**2) / 500)
        expected = TargetEncoder(smooth=within / between, target_type="continuous").fit(codes[:, None], y).encodings_[0]
        found = shrunken_means(codes, y[:, None], np.ones(500), 41)
        assert found[:40, 0] == pytest.approx(expected)
        assert found[40, 0] == pytest.approx(y.mean())  # a level without rows

    def test_count_by_weight_as_rows_do(self):
        _, codes, y, _ = self.table(500)
        weight = np.random.default_rng(3).integers(1, 4, 500)
        one = shrunken_means(codes, y[:, None], weight.astype(float), 40)
        other = shrunken_means(np.repeat(codes, weight), np.repeat(y, weight)[:, None], np.ones(weight.sum()), 40)
        np.testing.assert_allclose(one, other)

    def test_of_a_constant_response_have_its_mean(self):
        for n_rows in (1, 3, 50):
            codes = np.arange(n_rows) % 7
            found = cross_fitted_means(codes, np.full((n_rows, 1), 4.0), np.ones(n_rows), 7)
            assert np.isfinite(found).all()
            if n_rows > 1:
                np.testing.assert_allclose(found, 4.0)


class TestDates:
    def test_have_elapsed_time_and_circles(self):
        days = pd.date_range("2020-01-01", "2023-12-31", freq="7h")
        column = learned(days)
        out, counts = written(column, pd.to_datetime(["2022-01-01T00", "2021-07-02T12", "2021-07-05T00", None]))
        names = [label.strip(" ()") for label in column.labels]
        assert names == [
            "time",
            *(f"{wave} of {circle}" for circle in ("year", "week", "day") for wave in ("sine", "cosine")),
        ]
        assert out[0, 1:3] == pytest.approx([0, 1], abs=1e-6)  # the year begins
        assert out[1, 1:3] == pytest.approx([0, -1], abs=1e-6)  # half of 365 days
        assert out[2, 3:5] == pytest.approx([0, 1], abs=1e-6)  # a Monday
        assert out[1, 5:7] == pytest.approx([0, -1], abs=1e-6)  # noon
        assert not out[3].any()
        assert out[0, 0] > out[1, 0]
        assert counts == Counts(filled=1)

    def test_have_only_parts_that_vary(self):
        assert learned(pd.date_range("2001-01-01", periods=9, freq="YS")).labels[-1] == " (cosine of week)"
        assert len(learned(pd.date_range("2001-01-01", periods=9, freq="D")).labels) == 5
        day = learned(pd.to_datetime(["2001-01-01", None]))
        assert day.labels == (" (missing)",)

    def test_are_read_from_texts_as_in_training(self):
        column = learned(["31/01/2020", "01/02/2021", ""])
        report = column.describe("x")
        assert report.kind == "date"
        assert report.values == "2020-01-31 to 2021-02-01"
        same = written(column, ["05/04/2020"])[0]
        np.testing.assert_array_equal(same, written(column, pd.to_datetime(["2020-04-05"]))[0])
        assert written(column, ["2020-04-05"])[0][0, -1] > 0  # another format: missing

    def test_use_the_local_clock_and_the_time_in_utc(self):
        hours = pd.date_range("2020-06-01", periods=100, freq="h")
        here, there = (learned(hours.tz_localize(zone)) for zone in ("UTC", "Asia/Tokyo"))
        cells = pd.to_datetime(["2020-06-02 06:00"])
        one, other = written(here, cells.tz_localize("UTC"))[0], written(there, cells.tz_localize("Asia/Tokyo"))[0]
        assert one == pytest.approx(other)
        assert there.fields()["low"] == here.fields()["low"] - 9 / 24

    def test_far_in_the_future_stay_bounded(self):
        column = learned(pd.date_range("2020-01-01", periods=9, freq="D"))
        assert np.abs(written(column, ["9999-12-31", "0001-01-01"])[0]).max() <= 3


class TestRule:
    KINDS = (
        ([1, 2, 3], "number"),
        (["1", " 2.5 ", "", "1e3"], "number"),
        (["01", "02", "02"] * 5, "category"),
        (["red", "blue", "blue"] * 5, "category"),
        ([True, False], "boolean"),
        (["t", "f", "NA"], "boolean"),
        (["2020-01-01", "2021-05-05T10:00:00Z"], "date"),
        ([3, "red", "red"] * 5, "category"),
        (pd.Series(["1", "2", "2"] * 5, dtype="category"), "category"),
        (pd.Series(pd.PeriodIndex(["2020-01", "2020-03"], freq="M")), "date"),
    )

    @pytest.mark.parametrize(("cells", "kind"), KINDS)
    def test_says_what_a_column_is(self, cells, kind):
        assert learned(cells).describe("x").kind == kind

    def test_leaves_out_what_tells_nothing(self):
        assert reason([None, np.nan]) == "it has no values"
        assert reason([5, 5, 5]) == reason(["a"] * 9) == reason(["2020-01-01"] * 2) == "it has one value only"
        assert reason(list("aabb")) == "none of its levels has 5 rows"
        assert reason(list("abc")).startswith("it is an identifier")
        assert "MileTextClassifier" in reason([f"the quick brown fox jumps over {n} dogs" for n in range(30)])

    def test_follows_the_user(self):
        assert learned([1, 2] * 9, "category").describe("x").kind == "category"
        assert learned(["01", "02"], "number").describe("x").values == "1 to 2"
        assert learned([2001, 2002], "date").describe("x").values == "2001-01-01 to 2002-01-01"
        assert learned(["20240131", "20240229"], "date").describe("x").kind == "date"
        assert learned([0, 1, 1], "boolean").describe("x").kind == "boolean"
        assert learned(list("abc"), "category", fewest_rows=1).describe("x").kind == "category"
        assert reason([1, 2], "ignore") == "you asked for it"
        assert "MileTextClassifier" in reason([1, 2], "text")
        assert reason(["a", "b"], "number") == "none of its values can be read as a number"
        assert reason([np.inf, np.nan], "number") == "it has no values"
        assert reason(["a", "b"], "date") == "none of its values can be read as a date"
        assert reason(["a", "b"], "boolean") == "none of its values can be read as a boolean"
