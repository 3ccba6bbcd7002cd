"""A run of the benchmark: its record is whole, and it stops where it is told."""

import json
import sys

import pytest

from drq.bench import attacks, summary
from drq.bench.bench_run import BenchRun
from drq.bench.contestants import NAIVE, REFERENCE, contestants
from drq.bench.measure import TASKS, measure, read, write
from drq.bench.settings import ON_CPU, ON_CUDA, PARTS, BenchSettings
from drq.commands import completion
from drq.errors import InputError
from tools.promises import EXACT, promises


@pytest.mark.slow
class TestARun:
    def test_the_record_is_whole(self, record):
        found, path, _, _ = record
        assert read(path) == json.loads(json.dumps(found))
        assert set(PARTS) - {"imagenet"} <= found.keys()  # which needs a GPU
        assert {"device", "processor", "threads", "torch", "date"} <= found["machine"].keys()
        assert found["settings"].keys() == set(PARTS)
        assert found["subject"]["model"] == "digits"
        names = [each.name for each in contestants("cpu")]
        assert [each["contestant"] for each in found["speed"]] == names
        compared = {(each["contestant"], each["threat"]) for each in found["agreement"]}
        assert compared == {(each, threat) for each in names for threat in ("clean", "corrupted", "attacked")} - {
            (NAIVE, "corrupted"),
            (NAIVE, "attacked"),
        }
        assert [each["batch"] for each in found["batch"]] == [1, 4, 16]
        assert {each["pixels"] for each in found["size"]} == {32, 64}

    def test_what_must_agree_agrees(self, record):
        found, *_ = record
        assert all(each["share"] == 1 for each in found["agreement"] if each["contestant"] in (NAIVE, REFERENCE, "float32 exact"))
        naive, none = found["speed"][:2]
        assert naive["passes"] == 421
        assert naive["times_naive"] == 1
        assert none["passes"] <= 421
        assert found["classes"][0]["share_of_naive"] == pytest.approx(found["classes"][0]["passes"] / 420)

    def test_progress_is_told(self, record):
        _, _, told, said = record
        shares = [share for share, _ in told]
        assert shares == sorted(shares)
        assert shares[0] == 0
        assert told[-1] == (1.0, "done")
        assert any("imagenet is left out" in line for line in said)

    def test_every_part_has_a_table_in_80_columns(self, record):
        """With the longest name and much memory, as on a GPU, too."""
        found, *_ = record
        wide = {
            part: [row | {"contestant": EXACT, "peak_bytes": 2**36} for row in found[part]] for part in PARTS if part in found
        }
        for shown in (found, found | wide):
            made = summary.tables(shown)
            assert len(made) == len(PARTS) - 1
            for table in made:
                assert all(len(row) == len(table.head) for row in table.rows)
                assert max(map(len, table.plain().splitlines()[1:])) <= 80

    def test_attacks_are_as_strong_as_those_of_others(self, record):
        found, *_ = record
        assert {"drq", "foolbox"} <= {each["library"] for each in found["attacks"]}
        assert all(each.kept for each in promises(found) if "cross-entropy" in each.what)

    @pytest.mark.usefixtures("hasty")
    def test_other_parts_are_kept_on_request(self, record, tmp_path):
        _, path, *_ = record
        settings = BenchSettings.with_defaults("cpu", ["attacks"], model="digits", images=2)
        again = tmp_path / "again.json"
        again.write_text(path.read_text())
        kept = measure(settings, again, notify=lambda _: None, add=True)
        assert kept["speed"] == read(path)["speed"]
        assert kept["settings"]["speed"] == read(path)["settings"]["speed"]
        assert kept["attacks"][0]["images"] == 2
        other = json.loads(path.read_text())
        other["subject"]["model"] = "cifar10-small"
        write(again, other)
        with pytest.raises(InputError, match=r"model must be cifar10-small, as in the record.*got 'digits'"):
            measure(settings, again, notify=lambda _: None, add=True)
        write(again, kept | {"machine": kept["machine"] | {"threads": 99}})
        with pytest.raises(InputError, match="out must be a record of this machine"):
            measure(settings, again, notify=lambda _: None, add=True)
        assert "speed" not in measure(settings, again, notify=lambda _: None)

    @pytest.mark.usefixtures("hasty")
    def test_a_missing_library_costs_a_line(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "foolbox", None)
        said = []
        found = measure(BenchSettings.with_defaults("cpu", ["attacks"], model="digits", images=2), notify=said.append)
        assert "foolbox" not in {each["library"] for each in found["attacks"]}
        (line,) = [line for line in said if line.startswith("foolbox")]
        assert "pip install" in line


@pytest.mark.parametrize("usual", [{"device": "cpu", **ON_CPU}, {"device": "cuda", **ON_CUDA}], ids=["cpu", "cuda"])
def test_every_part_has_tasks(usual):
    assert list(TASKS) == list(PARTS) == list(completion.BENCH_PARTS)
    assert list(attacks.MAKERS) == ["drq", "foolbox", "torchattacks"]
    run = BenchRun(BenchSettings(**usual), lambda _: None)
    planned = {part: TASKS[part](run) for part in PARTS}
    assert all(task.weight > 0 for tasks in planned.values() for task in tasks)
    assert [part for part, tasks in planned.items() if not tasks] == (["imagenet"] if usual["device"] == "cpu" else [])


@pytest.mark.usefixtures("hasty")
def test_digits_stand_in_for_a_missing_data_set(tmp_path, monkeypatch):
    monkeypatch.setenv("DRQ_DATA", str(tmp_path))
    run = BenchRun(BenchSettings.with_defaults("cpu"), lambda _: None)
    assert run.inputs.name == "digits"
    assert "CIFAR-10 is not on this machine" in run.record["notes"][0]
