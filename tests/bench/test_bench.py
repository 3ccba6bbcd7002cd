"""The benchmark: its naive loop is the same method, its networks are what they say, its records are whole, its checks bite."""

import json
import re
import subprocess
import sys

import pytest
import torch
from testbed.classifiers import inputs, network
from torch import nn

import drq
from drq.bench import __main__ as plain
from drq.bench import attacks, growth, numbers, summary
from drq.bench.agreement import largest_gap
from drq.bench.contestants import NAIVE, REFERENCE, contestants, quickest
from drq.bench.naive import Naive
from drq.bench.promises import EXACT, RACE, promises
from drq.bench.run import TASKS, measure, read, write
from drq.bench.settings import ON_CPU, ON_CUDA, PARTS, Settings
from drq.bench.timing import tf32
from drq.bench.workshop import Workshop
from drq.commands import cli, completion
from drq.errors import InputError


class TestTheNaiveLoop:
    @pytest.mark.parametrize("norm", ["linf", "l2"])
    @pytest.mark.parametrize("radius", [0.05, 0.2])
    def test_it_gives_the_labels_of_drq_without_pruning(self, norm, radius):
        """Two programs that share no code, in float64, on regions curved enough that labels change."""
        model, x = network(3), inputs(1, 150, 4)
        ours = drq.DRQ(model, norm, radius, prune="none").decide(x)
        naive = Naive(model, norm, radius, batch=64).decide(x)
        assert torch.equal(naive.label, ours.label)
        assert torch.equal(naive.log_odds > -torch.inf, ours.reached)
        torch.testing.assert_close(naive.log_odds, ours.log_odds, rtol=1e-9, atol=1e-9)
        if radius == 0.2:
            assert (ours.label != ours.base_label).any()
            assert not ours.reached.all()

    def test_it_counts_its_passes(self):
        """One for the label of the model alone, and 21 points for every class in each of two searches."""
        calls, model = [], network(0)
        model.register_forward_hook(lambda _, given, __: calls.append(len(given[0])))
        passes = Naive(model, "linf", 0.1, batch=4).decide(inputs(0, 6, 4)).passes
        assert passes.tolist() == [1 + 2 * 21 * 4] * 6
        assert sum(calls) == passes.sum()
        assert growth.naive_passes(4) == passes[0] - 1

    def test_ties_go_to_the_base_label(self):
        """All classes are alike everywhere, so each has the same robustness; the model alone says the first."""
        model = nn.Linear(2, 3).double().eval()
        nn.init.zeros_(model.weight)
        nn.init.zeros_(model.bias)
        assert Naive(model, "linf", 0.1).decide(inputs(0, 2, 2)).label.tolist() == [0, 0]

    def test_it_leaves_parameters_as_found(self):
        model = network(0).requires_grad_(False)
        model[0].weight.requires_grad_(True)
        model[0].weight.grad = held = torch.ones_like(model[0].weight)
        before = [each.requires_grad for each in model.parameters()]
        Naive(model, "l2", 0.1, steps=2).decide(inputs(0, 2, 4))
        assert [each.requires_grad for each in model.parameters()] == before
        assert model[0].weight.grad is held
        assert (held == 1).all()
        assert all(each.grad is None for each in model.parameters() if each is not model[0].weight)

    def test_it_asks_for_gradients_of_parameters(self):
        """What makes it slow is really there."""
        model, seen = network(0).requires_grad_(False), []
        model.register_forward_hook(lambda *_: seen.append(model[0].weight.requires_grad))
        with torch.no_grad():
            Naive(model, "linf", 0.1, steps=2).decide(inputs(0, 2, 4))
        assert all(seen)

    def test_what_it_does_not_know_it_refuses(self):
        with pytest.raises(InputError, match="norm must be 'linf' or 'l2', got 'l1'"):
            Naive(network(0), "l1", 0.1)
        with pytest.raises(InputError, match="model must be in evaluation mode"):
            Naive(network(0).train(), "l2", 0.1)


@pytest.mark.parametrize("convolutions", [True, False])
def test_flags_are_put_back(convolutions):
    before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    with tf32(convolutions):
        assert (torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32) == (convolutions, False)
    assert (torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32) == before


class TestNumbers:
    def test_folded_heads_are_sums_of_heads(self):
        heads = nn.Linear(7, 30).double()
        x = inputs(0, 5, 7)
        first, second, third = heads(x).reshape(5, 3, 10).unbind(1)
        sums = first[:, :, None, None] + second[:, None, :, None] + third[:, None, None, :]
        torch.testing.assert_close(numbers.folded(heads)(x), sums.flatten(1))

    def test_digits_are_told_apart(self):
        """No two look alike in any thickness, and a drawing shows what its label says."""
        bank = numbers.glyphs().flatten(2)
        assert all(len(torch.unique(each, dim=0)) == 10 for each in bank)
        x, y = numbers.drawings(40, 3, seed=0)
        assert x.shape == (40, 3, 32, 32)
        assert 0 <= x.min() <= x.max() <= 1
        one = bank[:, 1].sum(1).mean()
        light = x[:, 0].mean((1, 2))
        eights = (y == 8).sum(1)
        ones = (y == 1).sum(1)
        assert one < bank[:, 8].sum(1).mean()
        assert light[eights > ones].mean() > light[ones > eights].mean()

    def test_the_same_seed_draws_the_same(self):
        state = torch.random.get_rng_state()
        (a, b), (c, d) = numbers.drawings(4, 2, seed=1), numbers.drawings(4, 2, seed=1)
        assert torch.equal(a, c)
        assert torch.equal(b, d)
        assert not torch.equal(a, numbers.drawings(4, 2, seed=2)[0])
        assert torch.equal(state, torch.random.get_rng_state())

    def test_a_network_learns_them(self):
        """A label is the number as it is read: far better than chance, one in a hundred, after a second."""
        state = torch.random.get_rng_state()
        made = numbers.Training(2, steps=120, batch=24).made(10)
        assert torch.equal(state, torch.random.get_rng_state())
        assert made.accuracy > 0.3
        assert made.model(made.x).shape == (10, 100)
        assert not made.model.training

    def test_four_digits_are_refused(self):
        with pytest.raises(InputError, match="digits must lie between 1 and 3, got 4"):
            numbers.drawings(1, 4, seed=0)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_contestants_are_those_that_are_promised(device):
    names = [each.name for each in contestants(device)]
    assert names[0] == NAIVE
    assert REFERENCE in names
    assert len(names) == len(set(names))
    assert {each.name for each in quickest(device)} <= set(names)
    if device == "cuda":
        assert {EXACT, RACE} <= set(names)


def test_the_largest_gap_is_that_of_labels_that_differ():
    odds = torch.tensor([[3.0, 1.0, 0.0], [2.0, 1.5, -torch.inf], [1.0, -torch.inf, -torch.inf]])
    assert largest_gap(odds, torch.tensor([False, False, False])) is None
    assert largest_gap(odds, torch.tensor([False, True, False])) == pytest.approx(0.5)
    assert largest_gap(odds, torch.tensor([False, True, True])) == pytest.approx(10_001)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """A cache that holds a hastily trained model of digits."""
    from drq.data.digits import split
    from drq.models import digits, weights

    folder = tmp_path_factory.mktemp("cache")
    weights.write(digits.train(digits.Recipe(epochs=1), split()[0]), folder / digits.Recipe().file_name, half=False)
    return folder


def hurry(patch, cache):
    """No training, and no compiler, which takes half a minute."""
    patch.setenv("DRQ_CACHE", str(cache))
    patch.setattr(torch, "compile", lambda function, **_: function)


@pytest.fixture
def hasty(cache, monkeypatch):
    hurry(monkeypatch, cache)


@pytest.fixture(scope="module")
def record(tmp_path_factory, cache):
    """All parts that a CPU has, on digits, hastily."""
    folder = tmp_path_factory.mktemp("bench")
    with pytest.MonkeyPatch.context() as patch:
        hurry(patch, cache)
        patch.setattr(growth, "STEPS", {"cpu": 5})
        patch.setattr(growth, "IMAGES", {"cpu": 4})
        patch.setattr(growth, "DIGITS", {"cpu": (1,)})
        settings = Settings.of("cpu", PARTS, model="digits", images=4, naive_images=3, samples=3)
        told, said = [], []
        found = measure(settings, folder / "record.json", lambda *each: told.append(each), said.append)
    return found, folder / "record.json", told, said


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
        settings = Settings.of("cpu", ["attacks"], model="digits", images=2)
        again = tmp_path / "again.json"
        again.write_text(path.read_text())
        kept = measure(settings, again, say=lambda _: None, add=True)
        assert kept["speed"] == read(path)["speed"]
        assert kept["settings"]["speed"] == read(path)["settings"]["speed"]
        assert kept["attacks"][0]["images"] == 2
        other = json.loads(path.read_text())
        other["subject"]["model"] = "cifar10-small"
        write(again, other)
        with pytest.raises(InputError, match=r"model must be cifar10-small, as in the record.*got 'digits'"):
            measure(settings, again, say=lambda _: None, add=True)
        write(again, kept | {"machine": kept["machine"] | {"threads": 99}})
        with pytest.raises(InputError, match="out must be a record of this machine"):
            measure(settings, again, say=lambda _: None, add=True)
        assert "speed" not in measure(settings, again, say=lambda _: None)

    @pytest.mark.usefixtures("hasty")
    def test_a_missing_library_costs_a_line(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "foolbox", None)
        said = []
        found = measure(Settings.of("cpu", ["attacks"], model="digits", images=2), say=said.append)
        assert "foolbox" not in {each["library"] for each in found["attacks"]}
        (line,) = [line for line in said if line.startswith("foolbox")]
        assert "pip install" in line


@pytest.mark.parametrize("usual", [{"device": "cpu", **ON_CPU}, {"device": "cuda", **ON_CUDA}], ids=["cpu", "cuda"])
def test_every_part_has_tasks(usual):
    assert list(TASKS) == list(PARTS) == list(completion.BENCH_PARTS)
    assert list(attacks.MAKERS) == ["drq", "foolbox", "torchattacks"]
    shop = Workshop(Settings(**usual), lambda _: None)
    planned = {part: TASKS[part](shop) for part in PARTS}
    assert all(task.weight > 0 for tasks in planned.values() for task in tasks)
    assert [part for part, tasks in planned.items() if not tasks] == (["imagenet"] if usual["device"] == "cpu" else [])


@pytest.mark.usefixtures("hasty")
def test_digits_stand_in_for_a_missing_data_set(tmp_path, monkeypatch):
    monkeypatch.setenv("DRQ_DATA", str(tmp_path))
    shop = Workshop(Settings.of("cpu"), lambda _: None)
    assert shop.subject.name == "digits"
    assert "CIFAR-10 is not on this machine" in shop.record["notes"][0]


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

    def test_the_command_ends_with_status_1(self, tmp_path, capfd, monkeypatch):
        monkeypatch.setattr(summary, "tables", lambda _: [])
        monkeypatch.setattr(summary, "machine", lambda _: "a machine")
        good, bad = tmp_path / "good.json", tmp_path / "bad.json"
        write(good, planted())
        write(bad, planted(bare={"shares": {EXACT: 0.5}}))
        assert cli.main(["bench", "--read", str(good), "--check"]) == 0
        assert plain.main(["--read", str(good), "--check"]) == 0
        capfd.readouterr()
        for run in (
            lambda: cli.main(["bench", "--read", str(bad), "--check"]),
            lambda: plain.main(["--read", str(bad), "--check"]),
        ):
            assert run() == 1
            assert "share of the passes of the bare model must be at least 0.8, got 0.5" in capfd.readouterr().err
        assert cli.main(["bench", "--read", str(bad)]) == 0


MISTAKES = {
    ("--parts", "sped"): "parts must be among speed.*got 'sped': did you mean speed",
    ("--images", "0"): "images must be at least 1, got 0",
    ("--device", "abacus"): "device must be cpu, or cuda.*got 'abacus'",
    ("--read", "nowhere.json"): "file must be a record that drq bench wrote.*nowhere.json",
    ("--model", "cifar10-smal"): "cifar10-smal",
}


@pytest.mark.parametrize("arguments", MISTAKES, ids=" ".join)
def test_a_mistake_is_one_line_and_status_2(arguments, capfd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["bench", "--quiet", *arguments]) == 2
    output, errors = capfd.readouterr()
    assert output == ""
    assert errors.count("\n") == 1
    assert re.search(MISTAKES[arguments], errors)


@pytest.mark.usefixtures("hasty")
def test_the_command_measures_shows_and_writes(tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    tiny = ["--model", "digits", "--images", "2", "--naive-images", "1", "--samples", "1", "--parts", "speed,agreement"]
    assert cli.main(["bench", *tiny, "--quiet", "--out", "one.json"]) == 0
    shown = capfd.readouterr().out
    assert "naive float32" in shown
    assert "Record: one.json" in shown
    assert "\x1b" not in shown
    assert cli.main(["bench", "--read", "one.json", "--json"]) == 0
    assert json.loads(capfd.readouterr().out) == read(tmp_path / "one.json")


def test_it_runs_where_nothing_else_is_installed(tmp_path):
    """As on a bare machine with a GPU: typer, rich, polars, scikit-learn and Pillow cannot be imported."""
    blocked = ("typer", "rich", "polars", "sklearn", "scipy", "PIL", "matplotlib", "foolbox", "cv2", "skimage")
    code = f"import sys; sys.modules.update(dict.fromkeys({blocked!r}))\n"
    code += "from drq.bench import growth\n"
    code += "growth.STEPS, growth.IMAGES, growth.DIGITS = {'cpu': 3}, {'cpu': 2}, {'cpu': (1,)}\n"
    code += "from drq.bench.__main__ import main\nsys.exit(main(sys.argv[1:]))"
    given = ["--device", "cpu", "--parts", "classes", "--out", str(tmp_path / "record.json"), "--quiet"]
    done = subprocess.run([sys.executable, "-c", code, *given], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "share" not in done.stderr
    assert read(tmp_path / "record.json")["classes"][0]["classes"] == 10
