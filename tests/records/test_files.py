"""Every record that is committed can be opened, with the readers of this version, and none is missing."""

import json
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest
from testbed.repository import ROOT

from drq.bench.measure import read
from drq.reproduction import experiments, paper_figures
from drq.reproduction.kept_records import read_record
from tools.pages import presets

RESULTS, PAPER = ROOT / "results", ROOT / "results" / "paper"
ON_DIGITS = {"digits"}  # runs in seconds on every machine, so no record of it is kept
EXPERIMENTS = sorted({*experiments.experiments_behind(["all"])} - ON_DIGITS)
MEASURED = [  # by benchmarks
    *("accuracy", "attacks", "card-cifar10-small", "gpu-time", "imagenet-cpu", "near-ties", "other-views"),
    *("plane-time", "scale", "spatial", "step-rules", "view-bounds", "view-variants"),
]
BENCHES = ["bench-cpu-linf", "bench-cpu-small", "bench-gpu"]  # of drq bench
GATES = ["view-gates"]  # of tools.gates
PICTURES = ["figure1"]  # of points that are made up, so there are no records that it could be drawn from


def test_no_file_is_unknown_and_none_is_missing():
    known = [PAPER / f"{name}.{suffix}" for name in EXPERIMENTS for suffix in ("parquet", "json")]
    known += [PAPER / f"{name}.svg" for name in PICTURES] + [PAPER / presets.TRIED, RESULTS / "view-search.md"]
    known += [RESULTS / f"{name}.json" for name in (*MEASURED, *BENCHES, *GATES)]
    assert sorted(path for path in RESULTS.rglob("*") if path.is_file()) == sorted(known)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_has_the_rows_that_it_says(name):
    record = read_record(PAPER, name)
    assert record is not None
    assert {*record.rows["experiment"]} == {name}
    assert {*record.rows["model"]} <= record.about["models"].keys()
    said = record.about["passes"]["answers"]
    assert abs(record.rows["passes"].sum() - said) <= max(record.rows.height, said / 1000)  # each is rounded
    assert not record.rows.select("model", "data", "suite", "threat", "victim", "defence", "index").is_duplicated().any()


@pytest.mark.parametrize("name", [*MEASURED, *GATES])
def test_a_measurement_says_where_it_was_made(name):
    record = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    assert {"machine", "torch"} <= record.keys()
    assert any(isinstance(each, list | dict) and each for key, each in record.items() if key != "machine")


@pytest.mark.parametrize("name", BENCHES)
def test_a_record_of_drq_bench_has_parts(name):
    assert read(RESULTS / f"{name}.json")["speed"]


def test_what_was_tried_is_told_by_ideas():
    tried = json.loads((PAPER / presets.TRIED).read_text(encoding="utf-8"))
    assert "What was tried" in presets.page(PAPER)
    assert max(Counter(rule["idea"] for rule in tried["rules"]).values()) > 1


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_drawn(name: str):
    assert name in paper_figures.FIGURES
    drawing = ElementTree.parse(Path(PAPER / f"{name}.svg")).getroot()
    assert drawing.tag == "{http://www.w3.org/2000/svg}svg"
    assert len([*drawing.iter("{http://www.w3.org/2000/svg}path")]) > 10
