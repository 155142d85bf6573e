"""Progress for people who watch a terminal and for logs."""

import io
import time

import numpy as np
import pytest
from rich.console import Console

from mile import _progress
from mile._progress import Bars, Lines, Silent, duration, show_progress


@pytest.fixture
def clock(monkeypatch):
    """Stand in for the clock that lines are timed by."""

    class Clock:
        now = 100.0

        def monotonic(self):
            return self.now

    clock = Clock()
    monkeypatch.setattr(_progress, "time", clock)
    return clock


class TestLines:
    def test_one_is_written_every_ten_seconds_with_chains_speed_time_left_and_note(self, clock):
        stream = io.StringIO()
        lines = Lines(stream)
        lines.start("sampling", 1_000, n_chains=12)
        for _ in range(5):
            clock.now += 4.0
            lines.note("validation LPPD -1.234")
            lines.advance(100)
        assert stream.getvalue().splitlines() == [
            "sampling: 30%, 12 chains, 25 steps/s, 28 s left, validation LPPD -1.234",
        ]
        clock.now += 3.0
        lines.finish()
        assert stream.getvalue().splitlines()[1] == "sampling: done in 23 s, validation LPPD -1.234"

    def test_a_short_stage_leaves_none(self, clock):
        stream = io.StringIO()
        lines = Lines(stream)
        lines.start("ensemble", 10, unit="epochs")
        clock.now += 1.0
        lines.advance(10)
        lines.finish()
        assert stream.getvalue() == ""

    def test_a_note_does_not_outlive_its_stage(self, clock):
        stream = io.StringIO()
        lines = Lines(stream)
        lines.start("a", 10)
        lines.note("old")
        lines.start("b", 10, unit="epochs", n_chains=1)
        clock.now += 10.0
        lines.advance(5)
        assert stream.getvalue() == "b: 50%, 1 chain, 0 epochs/s, 10 s left\n"

    def test_what_is_said_is_written_at_once(self):
        stream = io.StringIO()
        Lines(stream).say("about 3 min")
        assert stream.getvalue() == "about 3 min\n"


class TestBars:
    def test_show_stage_chains_speed_and_note(self):
        stream = io.StringIO()
        with Bars(Console(file=stream, force_terminal=True, width=140)) as bars:
            bars.start("sampling", 200, n_chains=12)
            time.sleep(0.01)
            bars.advance(50)
            bars.note("validation LPPD -1.234")
            bars.say("about 3 min")
        shown = stream.getvalue()
        for text in ("sampling", "25%", "12 chains", "steps/s", "left", "validation LPPD -1.234", "about 3 min"):
            assert text in shown

    def test_a_stage_that_ends_early_is_shown_as_full(self):
        stream = io.StringIO()
        with Bars(Console(file=stream, force_terminal=True, width=140)) as bars:
            bars.start("ensemble", 200)
            bars.advance(50)
            bars.finish()
        assert "100%" in stream.getvalue()


class TestChoice:
    def test_nothing_is_shown_unless_wanted(self):
        with show_progress(False) as progress:
            assert progress is None

    def test_a_terminal_gets_bars_and_everything_else_lines(self, monkeypatch):
        monkeypatch.delenv("FORCE_COLOR", raising=False)
        with show_progress(True) as progress:
            assert isinstance(progress, Lines)
        monkeypatch.setenv("FORCE_COLOR", "1")
        with show_progress(True) as progress:
            assert isinstance(progress, Bars)


@pytest.mark.parametrize("kind", [Silent, Lines, Bars])
def test_all_kinds_keep_the_protocol(kind):
    assert isinstance(kind(), _progress.Progress)


def test_durations_are_told_as_people_do():
    assert [duration(seconds) for seconds in (1.4, 119, 121, 7_300)] == ["1 s", "119 s", "2 min", "2.0 h"]
    assert np.all([isinstance(duration(seconds), str) for seconds in (0, 1e9)])
