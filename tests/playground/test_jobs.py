"""Long work: it can be watched, and stopped by whoever asked for it."""

import threading
import time

import pytest
import torch
from torch import nn

from drq.playground import image_sources, image_tab
from drq.playground.jobs import CountedModel, Job, Jobs, JobStopped, run_in_thread


def test_work_can_be_watched_and_stopped():
    job, model = Job(), nn.Linear(2, 2)
    watched = CountedModel(model, job)

    def work():
        job.begin("long work", 10**6)
        for _ in range(5000):
            watched(torch.zeros(3, 2))
            time.sleep(0.001)
        return "to the end"

    going = run_in_thread(work, job)
    news = [next(going), next(going)]
    assert news[-1].passes % 3 == 0
    assert news[-1].passes > 0
    job.stop()
    assert [*going] == []  # it ends at once
    with pytest.raises(JobStopped):
        watched(torch.zeros(1, 2))


def test_who_goes_away_leaves_no_work_behind():
    job = Job()
    ended, reached = threading.Event(), []

    def work():
        try:
            for _ in range(5000):
                job.count(1)
                time.sleep(0.001)
            reached.append("the end")
        finally:
            ended.set()

    going = run_in_thread(work, job)
    next(going)
    going.close()
    assert ended.wait(5)
    assert reached == []


def test_everybody_stops_their_own_work():
    jobs = Jobs()
    mine, yours = jobs.start("me"), jobs.start("you")
    assert jobs.stop("me")
    assert mine.stopped
    assert not yours.stopped
    assert not jobs.stop("me")
    again = jobs.start("you")  # new work ends the old
    assert yours.stopped
    assert not again.stopped
    jobs.finish("you", yours)  # the old one, which must not take the new one along
    assert jobs.stop("you")


def test_an_attack_is_cancelled_on_the_way():
    jobs, picture = Jobs(), image_sources.images_of(image_sources.DIGITS)[0]
    news = []
    for status, result, _ in image_tab.run_comparison(picture, "attack: PGD, linf", 1.0, 500, 0, "me", jobs):
        news.append(status)
        assert result is None
        jobs.stop("me")
    assert "<progress" in news[0]
    assert "Cancelled" in news[-1]


def test_a_mistake_in_the_work_is_told():
    (*_, (status, result, _)) = image_tab.run_comparison(
        image_sources.images_of(image_sources.DIGITS)[0], "rotation", 1e9, 1, 0, "me", Jobs()
    )
    assert 'role="alert"' in status
    assert result is None
