"""Results from other processes: which are refused, which one counts, and which tasks are computed twice."""

import itertools
from types import SimpleNamespace
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

from mile import Status
from mile.execution import DaskBackend, Flaw, result_checks
from mile.execution._answers import Answer, choose, is_sampled, last_resort, next_places
from mile.samplers.base import Finished

NOT_FINITE, MALFORMED = Flaw("NaN"), Flaw("a draw too few", is_malformed=True)


def answer(place, token, flaw=None):
    return Answer(SimpleNamespace(address=place, host=place[0]), flaw, token)


def chosen(*given, needs_two=False, knows_failure=False, only_one_place=False):
    found = choose(given, needs_two=needs_two, knows_failure=knows_failure, only_one_place=only_one_place)
    return found and found.token


class TestTheAnswerThatCounts:
    def test_is_the_first_that_can_be_right(self):
        assert chosen(answer("a", "x")) == "x"
        assert chosen(answer("a", "x", NOT_FINITE)) is None
        assert chosen(answer("a", "x", MALFORMED)) is None
        assert chosen(answer("a", "x", NOT_FINITE), answer("b", "y")) == "y"

    def test_of_a_chain_that_is_not_finite_is_what_two_places_say(self):
        assert chosen(answer("a", "x", NOT_FINITE), answer("b", "y", NOT_FINITE)) is None
        assert chosen(answer("a", "x", NOT_FINITE), answer("b", "x", NOT_FINITE)) == "x"
        assert chosen(answer("a", "x", NOT_FINITE), knows_failure=True) == "x"

    def test_is_never_malformed(self):
        twice = [answer(place, "x", MALFORMED) for place in "ab"]
        for options in ({}, {"knows_failure": True}, {"only_one_place": True}):
            assert chosen(*twice, **options) is None

    def test_is_given_by_two_places_where_two_are_needed(self):
        assert chosen(answer("a", "x"), needs_two=True) is None
        assert chosen(answer("a", "x"), answer("a", "x"), needs_two=True) is None
        assert chosen(answer("a", "x"), answer("a", "x"), needs_two=True, only_one_place=True) == "x"
        assert chosen(answer("a", "x"), answer("b", "y"), needs_two=True) is None
        assert chosen(answer("a", "x"), answer("b", "y"), answer("c", "y"), needs_two=True) == "y"

    def test_is_asked_for_on_another_host_then_another_worker_then_where_it_was_asked_least(self):
        hosts = {"a1": "a", "a2": "a", "b1": "b"}
        assert next_places([answer("a1", "x")], hosts) == ["b1"]
        assert next_places([answer("a1", "x"), answer("b1", "y")], hosts) == ["a2"]
        assert next_places([answer(place, "x") for place in ("a1", "b1", "a2", "a1")], hosts) == ["a2", "b1"]
        assert next_places([answer("a1", "x")], {"a1": "a"}) == ["a1"]

    def test_in_the_end_is_the_only_one_that_nothing_speaks_against(self):
        given = [answer("a", "x", NOT_FINITE), answer("b", "y"), answer("c", "z", MALFORMED), answer("b", "y")]
        assert [one.token for one in last_resort(given)] == ["y"]
        assert [one.token for one in last_resort([*given, answer("a", "w")])] == ["y", "w"]


class TestTasksComputedTwice:
    def test_are_a_share_that_names_decide(self):
        names = list(itertools.product(range(2), range(5), range(40), range(25)))  # seed, phase, chain, block
        found = [is_sampled(0.02, *name) for name in names]
        assert found == [is_sampled(0.02, *name) for name in names]
        # 200 of 10,000 on average; five standard deviations of 14.
        assert abs(sum(found) - 200) < 70
        assert found[:5_000] != found[5_000:]
        assert not any(is_sampled(0.0, *name) for name in names)
        assert all(is_sampled(1.0, *name) for name in names)

    def test_are_two_in_a_hundred_and_any_other_share(self):
        assert DaskBackend().verify == 0.02
        assert DaskBackend(verify=1).verify == 1
        for wrong in (-0.1, 1.5, np.nan, "all", True):
            with pytest.raises(ValueError, match="verify must be a number between"):
                DaskBackend(verify=wrong)


class Carry(NamedTuple):
    position: Any
    logdensity: Any
    largest: Any  # a bound that has not been met yet is infinite in healthy chains


class Record(NamedTuple):
    position: Any
    energy: Any


class Advanced(NamedTuple):
    carries: Any
    records: Any
    seconds_per_step: Any = 0.1


BEFORE = Carry(np.ones((1, 3), np.float32), np.zeros(1, np.float32), np.full(1, np.inf, np.float32))
RECORD = Record(jax.ShapeDtypeStruct((1, 3), np.float32), jax.ShapeDtypeStruct((1,), np.float32))
RECORDS = Record(np.ones((1, 4, 3), np.float32), np.ones((1, 4), np.float32))


def with_nan(array):
    return np.where(np.arange(array.size).reshape(array.shape) == array.size - 1, np.nan, array).astype(array.dtype)


class TestChecks:
    def check(self, carries=BEFORE, records=RECORDS, **others):
        found = Advanced(carries, records, **others)
        return result_checks.check_advanced(found, before=BEFORE, record=RECORD, n_records=4)

    def test_let_healthy_chains_pass(self):
        assert self.check() is None
        assert self.check(BEFORE._replace(largest=np.ones(1, np.float32))) is None
        assert result_checks.check_begun(BEFORE, expected=BEFORE, before=BEFORE.position) is None
        ended = Finished(BEFORE, np.array([Status.OK]), {"L": np.full(1, np.nan)})
        assert result_checks.check_finished(ended, expected=ended, before=BEFORE) is None

    def test_find_what_was_finite_or_must_be(self):
        for flaw in (
            self.check(BEFORE._replace(position=with_nan(BEFORE.position))),
            self.check(BEFORE._replace(logdensity=with_nan(BEFORE.logdensity))),
            self.check(records=RECORDS._replace(position=with_nan(RECORDS.position))),
            self.check(records=RECORDS._replace(energy=with_nan(RECORDS.energy))),
            result_checks.check_begun(BEFORE._replace(position=with_nan(BEFORE.position)), expected=BEFORE, before=0.0),
            result_checks.check_begun(
                BEFORE._replace(logdensity=with_nan(BEFORE.logdensity)), expected=BEFORE, before=0.0
            ),
        ):
            assert flaw is not None
            assert flaw.sentence.startswith("NaN or infinite numbers in .")
            assert not flaw.is_malformed

    def test_expect_finite_conclusions_of_chains_that_are_well_only(self):
        position = np.stack([BEFORE.position[0], with_nan(BEFORE.position)[0]])
        two = jax.tree.map(lambda leaf: np.concatenate([leaf, leaf]), BEFORE)
        for status, is_found in ([Status.OK, Status.DIVERGED], False), ([Status.DIVERGED, Status.OK], True):
            ended = Finished(two._replace(position=position), np.array(status), {})
            assert (result_checks.check_finished(ended, expected=ended, before=two) is not None) == is_found

    def test_find_results_that_are_none(self):
        ended = Finished(BEFORE, np.array([Status.OK]), {})
        for flaw in (
            self.check(carries=None),
            self.check(records="text"),
            self.check(records=jax.tree.map(lambda leaf: leaf[:, :3], RECORDS)),
            self.check(BEFORE._replace(logdensity=np.zeros(1))),
            self.check(BEFORE._replace(logdensity=0.0)),
            self.check(seconds_per_step=np.nan),
            self.check(seconds_per_step=None),
            result_checks.check_advanced(None, before=BEFORE, record=RECORD, n_records=4),
            result_checks.check_finished(ended._replace(status=np.array([99])), expected=ended, before=BEFORE),
            result_checks.check_trained("text", expected=BEFORE, is_validated=True),
        ):
            assert flaw is not None
            assert flaw.is_malformed

    def test_of_predictions_take_labels_of_any_length(self):
        expected = np.array(["cat", "dog"])
        assert result_checks.check_rows(np.array(["mouse", "owl"]), expected=expected) is None
        assert result_checks.check_rows(np.array([1.0, 2.0]), expected=expected).is_malformed
        assert result_checks.check_rows(np.array(["owl"]), expected=expected).is_malformed
