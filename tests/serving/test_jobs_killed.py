"""Jobs that are killed at any moment, here and on Ray, end with the table of one that nothing disturbed."""

import random

import pytest

from tools.benchmarks import predict_jobs as work

COUNT = 60


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return work.pictures(tmp_path_factory.mktemp("pictures"), COUNT)


@pytest.fixture(scope="module")
def whole(folder):
    """The undisturbed table, of a job slow enough to be stopped in its midst."""
    path = folder.parent / "whole.csv"
    work.ended(job(folder, path))
    assert len(work.rows(path)) == COUNT
    return path


def job(folder, out, *options):
    return work.job(folder, out, *options, preset="paper")


@pytest.mark.slow
def test_kills_lose_and_double_nothing(folder, whole, tmp_path):
    out = tmp_path / "a.csv"
    print(work.disturbed(job(folder, out), out, work.size(whole), kills=3, seed=2))
    assert work.verdict(out, whole, COUNT) == "one row a picture, equal"


@pytest.mark.slow
def test_kills_on_ray_lose_and_double_nothing(folder, whole, tmp_path):
    """Of workers, which others replace, and then of the job itself."""
    pytest.importorskip("ray", reason="ray is not installed")
    out = tmp_path / "workers.csv"
    said = work.disturbed_workers(job(folder, out, *work.ON_RAY), out, kills=2, whole=work.size(whole))
    assert said == "2 of its workers killed"
    assert work.verdict(out, whole, COUNT) == "one row a picture, equal"
    out = tmp_path / "job.csv"
    command = job(folder, out, *work.ON_RAY)
    assert work.killed(command, out, work.size(whole) // 3, 0.0)
    assert 0 < len(work.rows(out)) < COUNT
    work.cut_off(out, random.Random(1))
    work.ended(command)
    assert work.verdict(out, whole, COUNT) == "one row a picture, equal"


def test_a_table_that_differs_is_told(tmp_path):
    """Or these tests could not fail."""
    header, one, other = "file,answer,margin,seconds\n", "a.png,cat,0.5,1\n", "b.png,dog,0.25,2\n"
    tables = {
        "whole": header + one + other,
        "later": header + other.replace(",2\n", ",3\n") + one,
        "once": header + one,
        "twice": header + one + other + other,
        "another": header + one + other.replace("0.25", "0.250001"),
    }
    for name, content in tables.items():
        (tmp_path / name).write_text(content)
    verdicts = [work.verdict(tmp_path / name, tmp_path / "whole", 2) for name in tables]
    assert verdicts[:2] == ["one row a picture, equal"] * 2
    assert verdicts[2:] == ["1 ROWS, DIFFERENT", "3 ROWS, DIFFERENT", "one row a picture, DIFFERENT"]
