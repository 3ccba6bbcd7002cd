"""The checks of the records of drq bench bite: one that breaks a promise is noticed."""

import re

import pytest

from drq.bench.contestants import NAIVE
from drq.bench.measure import write
from drq.commands import cli
from tools.promises import EXACT, RACE, main, promises


def planted(device="cuda", **changes):
    """A record that keeps every promise, but for these changes."""
    fast = {EXACT: 30, RACE: 60} if device == "cuda" else {"compiled float32 exact": 3.5, "compiled float32 race": 7}
    kind = "compiled float16" if device == "cuda" else "float32"
    shares = {f"{kind} exact": 0.52, f"{kind} race": 0.15}
    whole = {
        "machine": {"device": device},
        "subject": {"model": "cifar10-small"},
        "speed": [{"contestant": name, "times_naive": each, "latency_seconds": 0.05} for name, each in fast.items()],
        "agreement": [
            {"contestant": name, "threat": threat, "share": 0.998}
            for name in (NAIVE, *fast)
            for threat in ("clean", "corrupted", "attacked")
        ],
        "classes": [{"contestant": name, "classes": 100, "share_of_naive": share} for name, share in shares.items()],
        "batch": [{"compilations": 2}, {"compilations": 0}],
        "bare": {"shares": {EXACT: 0.85}},
        "memory": {f"classes, {EXACT}": 1.05, f"batch, {EXACT}": 1.0},
        "imagenet": [{"contestant": name, "seconds_per_image": 1.2} for name in fast],
        "attacks": [{"library": "drq", "cross_entropy": 2.0}, {"library": "foolbox", "cross_entropy": 2.0}],
        "settings": {},
        "notes": [],
    }
    return whole | changes


BROKEN = {
    "times the naive loop .*got 20$": {"speed": [{"contestant": EXACT, "times_naive": 20, "latency_seconds": 0.05}]},
    "one image.* at most 0.06, got 0.07": {"speed": [{"contestant": RACE, "times_naive": 60, "latency_seconds": 0.07}]},
    "equal labels, attacked .*got 0.99$": {"agreement": [{"contestant": EXACT, "threat": "attacked", "share": 0.99}]},
    "naive loop equal to those without pruning": {"agreement": [{"contestant": NAIVE, "threat": "clean", "share": 0.9}]},
    "bare model must be at least 0.8, got 0.7": {"bare": {"shares": {EXACT: 0.7}}},
    "100 classes, exact": {"classes": [{"contestant": EXACT, "classes": 100, "share_of_naive": 0.6}]},
    "100 classes, race": {"classes": [{"contestant": RACE, "classes": 100, "share_of_naive": 0.3}]},
    "a further size of batch": {"batch": [{"compilations": 2}, {"compilations": 1}]},
    "memory with classes must be at most 1.1, got 1.2": {"memory": {f"classes, {EXACT}": 1.2}},
    "1000 classes at 224": {"imagenet": [{"contestant": RACE, "seconds_per_image": 2.0}]},
    "minus that of foolbox": {
        "attacks": [{"library": "drq", "cross_entropy": 1.9}, {"library": "foolbox", "cross_entropy": 2.0}]
    },
}


def broken(record):
    return [each.line for each in promises(record) if each.value is not None and not each.kept]


class TestPromises:
    @pytest.mark.parametrize("device", ["cpu", "cuda"])
    def test_a_good_record_keeps_them(self, device):
        assert broken(planted(device)) == []
        assert all(each.value is not None for each in promises(planted(device)))

    @pytest.mark.parametrize("words", BROKEN)
    def test_a_broken_one_is_named(self, words):
        (line,) = broken(planted(**BROKEN[words]))
        assert re.search(words, line)

    def test_a_cpu_has_its_own(self):
        slow = [{"contestant": "compiled float32 exact", "times_naive": 2.7, "latency_seconds": 1.0}]
        (line,) = broken(planted("cpu", speed=slow))
        assert "cifar10-small: times the naive loop must be at least 3, got 2.7" in line
        assert broken(planted("cpu", speed=slow, subject={"model": "cifar10-linf"})) == []

    def test_what_was_not_measured_is_not_broken(self):
        assert broken({"machine": {"device": "cuda"}}) == []

    def test_the_tool_ends_with_status_1(self, tmp_path, capsys):
        good, bad = tmp_path / "good.json", tmp_path / "bad.json"
        write(good, planted())
        write(bad, planted(bare={"shares": {EXACT: 0.5}}))
        assert main([str(good)]) == 0
        assert "promises kept" in capsys.readouterr().out
        assert main([str(good), str(bad)]) == 1
        assert "share of the passes of the bare model must be at least 0.8, got 0.5" in capsys.readouterr().out

    def test_a_file_that_is_no_record_is_a_mistake(self, tmp_path, capsys):
        with pytest.raises(SystemExit, match="2"):
            main([str(tmp_path / "none.json")])
        assert "none.json" in capsys.readouterr().err

    def test_the_command_names_the_tool(self, capsys):
        assert cli.main(["bench", "--check"]) == 2
        assert "tools.promises" in capsys.readouterr().err
