"""Long work: it can be watched, and stopped by whoever asked for it."""

import threading
import time

import pytest
import torch
from torch import nn

from drq.playground import image_sources, image_tab
from drq.playground.jobs import Desk, Stopped, Watch, Watched, followed


def test_work_can_be_watched_and_stopped():
    watch, model = Watch(), nn.Linear(2, 2)
    watched = Watched(model, watch)

    def work():
        watch.begin("long work", 10**6)
        for _ in range(5000):
            watched(torch.zeros(3, 2))
            time.sleep(0.001)
        return "to the end"

    going = followed(work, watch)
    news = [next(going), next(going)]
    assert news[-1].passes % 3 == 0
    assert news[-1].passes > 0
    watch.stop()
    assert [*going] == []  # it ends at once
    with pytest.raises(Stopped):
        watched(torch.zeros(1, 2))


def test_who_goes_away_leaves_no_work_behind():
    watch = Watch()
    ended, reached = threading.Event(), []

    def work():
        try:
            for _ in range(5000):
                watch.count(1)
                time.sleep(0.001)
            reached.append("the end")
        finally:
            ended.set()

    going = followed(work, watch)
    next(going)
    going.close()
    assert ended.wait(5)
    assert reached == []


def test_everybody_stops_their_own_work():
    desk = Desk()
    mine, yours = desk.take("me"), desk.take("you")
    assert desk.stop("me")
    assert mine.stopped
    assert not yours.stopped
    assert not desk.stop("me")
    again = desk.take("you")  # new work ends the old
    assert yours.stopped
    assert not again.stopped
    desk.leave("you", yours)  # the old one, which must not take the new one along
    assert desk.stop("you")


def test_an_attack_is_cancelled_on_the_way():
    desk, picture = Desk(), image_sources.offered(image_sources.DIGITS)[0]
    news = []
    for status, result, _ in image_tab.asked(picture, "attack: PGD, linf", 1.0, 500, 0, "me", desk):
        news.append(status)
        assert result is None
        desk.stop("me")
    assert "<progress" in news[0]
    assert "Cancelled" in news[-1]


def test_a_mistake_in_the_work_is_told():
    (*_, (status, result, _)) = image_tab.asked(
        image_sources.offered(image_sources.DIGITS)[0], "rotation", 1e9, 1, 0, "me", Desk()
    )
    assert 'role="alert"' in status
    assert result is None
