"""Progress by a clock that the tests turn: when a line is written, what it says, and what is told of passes."""

import copy
import io
import pickle
import sys
import threading
from types import SimpleNamespace

import pytest
from testbed.refusals import refused

from drq.system import progress
from drq.system.progress import OFTEN, PATIENCE, Bar, Listener, Meter


class Clock:
    """Stands still until it is turned."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now


class Screen(io.StringIO):
    """A terminal, as far as it is asked."""

    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    turned = Clock()
    monkeypatch.setattr(progress, "time", turned)
    return turned


@pytest.fixture
def errors(monkeypatch):
    """Puts something in the place of standard error, once the test runs: pytest has its own before."""

    def become(stream):
        monkeypatch.setattr(sys, "stderr", stream)
        return stream

    return become


def told(bar, clock, *steps):
    """Tell the bar shares, each so many seconds after the one before."""
    for seconds, done in steps:
        clock.now += seconds
        bar(done, "step")


def test_in_a_file_lines_are_rare_and_the_last_one_comes_at_once(clock, errors):
    file = errors(io.StringIO())
    told(Bar("work"), clock, (1, 0.1), (20, 0.2), (9, 0.25), (29, 0.5), (1.5, 0.6), (0.5, 1.0))
    assert file.getvalue() == "work  25 %, 1:30 left  step\nwork  60 %, 0:40 left  step\nwork 100 %, 0:00 left  step\n"


def test_on_a_terminal_one_line_is_rewritten_not_too_often(clock, errors):
    screen = errors(Screen())
    told(Bar("work"), clock, (0, 0.0), (OFTEN / 2, 0.1), (OFTEN, 0.5), (OFTEN / 2, 0.8), (0, 1.0))
    begins = [each.rstrip() for each in screen.getvalue().split("\r")]
    assert begins == ["", "work   0 %  step", "work  50 %, 0:00 left  step", "work 100 %, 0:00 left  step"]
    assert screen.getvalue().endswith("\n")
    assert screen.getvalue().count("\n") == 1


@pytest.mark.parametrize("kind", [io.StringIO, Screen])
def test_what_is_done_before_patience_ends_writes_nothing(clock, errors, kind):
    written = errors(kind())
    told(Bar("work", patience=5), clock, (1, 0.1), (3.9, 0.9), (0, 1.0))
    assert written.getvalue() == ""
    told(Bar("work", patience=5), clock, (60, 1.0))  # nobody could wait for it
    assert written.getvalue() == ""
    told(Bar("work", patience=5), clock, (1, 0.1), (5, 0.5), (4, 1.0))
    assert [each.strip() for each in written.getvalue().replace("\n", "\r").split("\r") if each.strip()] == [
        "work  50 %, 0:06 left  step",
        "work 100 %, 0:00 left  step",
    ]


def test_a_meter_never_goes_back_and_ends_once():
    heard = []
    meter = Meter(lambda *each: heard.append(each), 100)
    meter.count(20)
    meter.spare(50)
    meter.expect(150)  # more than was known
    meter.count(30)
    meter.count(50)
    meter.spare(80)
    meter.count(20)  # all, as far as is known: who asked will say so
    assert heard == [(20, 100), (20, 50), (100, 200), (100, 120)]
    meter.end()
    assert heard[-1] == (120, 120)


def test_a_meter_of_nothing_is_silent():
    Meter(lambda *_: pytest.fail("told"), 0).end()


def test_a_listener_shows_a_bar_when_asked(clock, errors):
    file = errors(io.StringIO())
    meter = Listener(True).meter("deciding", 20_000)
    meter.count(1000)
    clock.now += PATIENCE
    meter.count(4000)
    clock.now += 15
    meter.spare(10_000)
    meter.count(5000)
    meter.end()
    first, last = file.getvalue().splitlines()
    assert first == "deciding  25 %, 0:15 left  5,000 of at most 20,000 passes of the model"
    assert last.startswith("deciding 100 %, 0:00 left  10,000 of at most 10,000")


def test_copies_tell_the_same_and_pickles_nobody():
    class Window:
        def __init__(self):
            self.lock, self.heard = threading.Lock(), []

        def show(self, done, total):
            with self.lock:
                self.heard.append((done, total))

    window = Window()
    listener = Listener(window.show)
    copy.deepcopy(listener).meter("deciding", 2).count(1)
    assert window.heard == [(1, 2)]
    assert pickle.loads(pickle.dumps(listener)).progress is False
    assert [pickle.loads(pickle.dumps(Listener(each))).progress for each in (True, False)] == [True, False]


@pytest.mark.parametrize("wrong", [None, 1, "bar", SimpleNamespace()])
def test_who_cannot_be_told_is_refused(wrong):
    refused(Listener, wrong, words=["progress must be True, False or a function of passes done and in all", "True shows a bar"])
