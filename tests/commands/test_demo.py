"""The tour of ``drq demo``: what it evaluates, and that every shift makes the model work."""

import json
import sys

import polars as pl
import pytest
from testbed.refusals import refused

import drq
from drq.commands import cli, demo

pytest.importorskip("sklearn")


@pytest.mark.parametrize("images", [0, -3, 501, 99999])
def test_impossible_numbers_of_images_are_refused(images):
    refused(demo.tour, images, words=["images must lie between 1 and 500", f"got {images}:"])


@pytest.mark.parametrize("package", ["sklearn", "polars", "matplotlib"])
def test_whatever_is_missing_one_command_installs_it_all(package, monkeypatch, capfd, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, package, None)
    assert cli.main(["demo"]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert line.endswith("pip install 'decision-region-quantification[demo]'")


def test_few_images_are_few_under_every_threat():
    spec = demo.tour(7, seed=3)
    assert {trial.limit for trial in spec.threats.values()} == {7}
    assert spec.threats["noise"].threat.seed == 3
    assert demo.tour(200).threats["red team"].limit < 200
    assert spec.threats["red team"].victim == "defence"


def test_the_model_is_decent_and_every_shift_hurts_it(tmp_path):
    source = dict(demo.tour(200).source)
    alone = {"defences": {"standard": {}}, "groups": [{**source["groups"][0], "defences": ["standard"]}]}
    run = drq.evaluate(source | alone, tmp_path / "run")
    right = (pl.col("prediction") == pl.col("label")).mean() * 100
    accuracy = dict(run.records.group_by("threat").agg(right).iter_rows())
    assert accuracy.pop("clean") > 95
    assert set(accuracy) == {"noise", "blur", "rotation", "translation", "PGD", "APGD"}
    for threat, share in accuracy.items():
        assert 55 < share < 90, threat


@pytest.mark.slow
def test_the_whole_tour(tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["demo", "--images", "10", "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert {row["threat"] for row in found["accuracy"]} == set(demo.tour(10).threats)
    records = drq.Run.open(found["run"]).records
    assert len(records) == 10 * (7 * 3 + 2)
    page = (tmp_path / "drq-demo" / "report.html").read_text()
    assert page.startswith("<!doctype html>")
    assert "red team" in page
