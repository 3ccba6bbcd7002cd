"""Runs below one folder: what is found, what is shown, and that nothing else can be reached."""

import time

import pytest
import torch
from testbed.playing import BROKEN, REPAIRED, run
from testbed.synthetic import records

import drq
from drq.errors import InputError
from drq.playground import markup, opened_runs, run_tab, sample_html


@pytest.fixture
def folder(tmp_path):
    """A folder with a run in it, and something outside of it."""
    run(tmp_path / "runs" / "deep" / "one")
    run(tmp_path / "outside")
    return tmp_path / "runs"


def test_runs_are_found_and_opened(folder):
    assert opened_runs.list_runs(folder) == ["deep/one"]
    found = opened_runs.open_run(folder, "deep/one")
    assert len(found.records) == 240
    assert run_tab.group_names(found) == ["clean, DRQ linf", "PGD, DRQ linf"]


@pytest.mark.parametrize(
    "name",
    [
        "",
        "..",
        "../outside",
        "deep/../../outside",
        "/etc",
        "deep/one/../../../outside",
        "a\0b",
        "..\\outside",
        "deep/../deep/one",
    ],
)
def test_paths_out_of_the_folder_are_refused(folder, name):
    with pytest.raises(InputError, match="run must be"):
        opened_runs.open_run(folder, name)
    with pytest.raises(InputError, match="run must be"):
        opened_runs.open_run(folder, str(folder.parent / "outside"))


def test_links_out_of_the_folder_are_refused(folder):
    (folder / "link").symlink_to(folder.parent / "outside")
    with pytest.raises(InputError, match="stays within the folder"):
        opened_runs.open_run(folder, "link")
    (folder / "circle").symlink_to(folder / "circle")
    with pytest.raises(InputError, match="stays within the folder"):
        opened_runs.open_run(folder, "circle")
    (folder / "here").symlink_to(folder / "deep" / "one")
    assert len(opened_runs.open_run(folder, "here").records) == 240  # one that stays inside is fine
    (folder / "deep" / "one" / "images" / "0001-0000000.npz").symlink_to(folder.parent / "outside" / "run.json")
    with pytest.raises(InputError, match="stays within the folder"):
        opened_runs.open_run(folder, "deep/one")


def test_a_damaged_run_is_refused(folder):
    (folder / "deep" / "one" / "records" / "0000.parquet").write_bytes(b"PAR1 nonsense")
    with pytest.raises(InputError):
        opened_runs.open_run(folder, "deep/one")
    (folder / "empty").mkdir()
    with pytest.raises(InputError):
        opened_runs.open_run(folder, "empty")


def test_a_run_is_read_again_once_it_changed(folder):
    before = opened_runs.open_run(folder, "deep/one")
    assert opened_runs.open_run(folder, "deep/one") is before
    time.sleep(0.02)
    records(30, models=("digits",), data=("digits",)).write_parquet(folder / "deep" / "one" / "records" / "0000.parquet")
    assert len(opened_runs.open_run(folder, "deep/one").records) == 30 * 3 * 2


@pytest.mark.parametrize("group", [0, 1])
def test_filters_find_what_was_repaired_and_broken(folder, group):
    found = opened_runs.open_run(folder, "deep/one")
    rows = {which: found.samples(found.groups[group], which) for which in opened_runs.FILTERS}
    right, base = ((rows["all"][name] == rows["all"]["label"]).to_numpy() for name in ("prediction", "base_prediction"))
    assert len(rows["all"]) == 60
    assert rows["repaired"]["index"].to_list() == (right & ~base).nonzero()[0].tolist() == REPAIRED
    assert rows["broken"]["index"].to_list() == (~right & base).nonzero()[0].tolist() == BROKEN
    named = run_tab.sample_names(found, group, "repaired")
    assert [index for _, index in named] == rows["repaired"]["index"].to_list()
    with pytest.raises(InputError, match="filter must be"):
        found.samples(found.groups[0], "others")


def test_the_numbers_of_a_run_are_those_of_its_records(folder):
    found = opened_runs.open_run(folder, "deep/one")
    shown = run_tab.overview(found)
    rows = found.records.filter(threat="PGD", defence="DRQ linf")
    share = 100 * (rows["prediction"] == rows["label"]).mean()
    assert f"<td>{share:.1f}</td>" in shown
    assert "data:image/svg+xml" in shown


def test_names_of_a_run_have_no_effect(folder):
    told = run_tab.summary(opened_runs.open_run(folder, "deep/one"))
    assert "<b>" not in told
    assert "&lt;b&gt;Bold" in told
    assert markup.text('"><script>') == "&quot;&gt;&lt;script&gt;"
    assert len(markup.text("x" * 500)) == markup.LONGEST
    assert "<i>" not in markup.error("<i>")


def test_a_sample_shows_its_image_and_its_record(folder):
    found = opened_runs.open_run(folder, "deep/one")
    kept, lost = run_tab.sample(found, 0, 1), run_tab.sample(found, 0, 50)
    assert "Card of the decision of DRQ" in kept
    assert "Card" not in lost
    row = found.samples(found.groups[0]).filter(index=1).row(0, named=True)
    assert torch.equal(found.image(row), drq.load_data("digits", limit=2)[1][0])
    assert f"<td>{row['prediction']}</td>" in kept
    with pytest.raises(InputError, match="sample must be one of the list"):
        run_tab.sample(found, 0, 10**6)


def test_only_classifiers_of_the_package_have_classes():
    """A run may name anything, a file of the package that is no classifier, too."""
    assert [sample_html.known_class_names(name) is not None for name in ("digits", "cifar10-small", "cifar10-tiny")] == [True] * 3
    assert [sample_html.known_class_names(name) for name in ("cifar10-denoiser", "cifar10-linf", "python:os:system")] == [
        None
    ] * 3


def test_a_run_makes_nobody_load_a_model_or_run_code(tmp_path, monkeypatch):
    """Its names are words of whoever wrote it: a function that they name would leave a mark."""
    image, mark = torch.rand(1, 8, 8), tmp_path / "ran"
    (tmp_path / "left_behind.py").write_text(f"def load(*_, **__):\n    open({str(mark)!r}, 'w').close()\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert sample_html.rerun_decision("digits", {"defence": "drq", "norm": "linf", "radius": 0.3}, image) is not None
    assert sample_html.rerun_decision("python:left_behind:load", {"defence": "drq"}, image) is None
    assert sample_html.rerun_decision("digits", {"defence": "python:left_behind:load"}, image) is None
    assert sample_html.rerun_decision("digits", {"defence": "drq", "norm": "l9"}, image) is None
    assert not mark.exists()
