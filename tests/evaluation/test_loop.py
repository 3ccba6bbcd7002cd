"""Every row of an evaluation against a direct computation with the model, the threat and the defence."""

import hashlib
import json
import math
import warnings
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from shutil import copytree

import duckdb
import numpy as np
import pandas
import polars as pl
import pytest
import torch
from testbed.refusals import refused
from torch import Tensor, nn
from torch.utils.data import Dataset, TensorDataset

import drq
from drq import Spec, Trial, threats
from drq.data.dataset import Data, Held
from drq.errors import MissingError
from drq.evaluation.records import COLUMNS
from drq.evaluation.showcase import examples
from drq.method.adapters import Subset, Wrapper
from drq.method.setting import InPrecision
from drq.models import weights
from drq.models.classifier import Card
from drq.system.threads import threads

COUNT = 24
PGD = threats.PGD("linf", 0.15, 4)
FEW = {"explore": drq.Gradient(4), "quantify": drq.Gradient(3)}
CALIBRATED = {"norm": "l2", "radius": drq.Calibrated(0.97, 20), "alpha": 0.4, **FEW}
FIXED = {"norm": "linf", "radius": 0.2, **FEW}
DEFENCES = {"standard": {}, "calibrated": CALIBRATED, "fixed": FIXED}
KEY = ["model", "data", "suite", "threat", "victim", "defence", "index"]


def network(seed: int = 0, classes: int = 4) -> nn.Sequential:
    """A small classifier of images of 1 x 4 x 4 with curved regions, in which every class has its share."""
    draws = torch.Generator().manual_seed(seed)
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 24), nn.Tanh(), nn.Linear(24, classes)).eval()
    for parameter in model.parameters():
        parameter.data = 4 * torch.randn(parameter.shape, generator=draws) / parameter.shape[-1] ** 0.5
    with torch.no_grad():
        model[-1].bias -= model(torch.rand((1000, 1, 4, 4), generator=draws)).mean(0)
    return model


def images(model: nn.Module, count: int = COUNT, seed: int = 1) -> TensorDataset:
    """Random images; every third label is another than the model's."""
    x = torch.rand((count, 1, 4, 4), generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        logits = model(x)
    wrong = torch.arange(count) % 3 == 0
    return TensorDataset(x, torch.where(wrong, (logits.argmax(1) + 1) % logits.shape[1], logits.argmax(1)))


MODEL = network()
DATA = images(MODEL)
X, Y = DATA.tensors
INDEX = torch.arange(COUNT)


def ours(**changes: object) -> Spec:
    """A spec of the small model on its images, in one shard."""
    return Spec(**{"models": {"mine": MODEL}, "data": {"mine": DATA}, "defences": {"standard": {}}, "shard": COUNT} | changes)


def rows(records: pl.DataFrame, threat: str, defence: str) -> dict[str, list]:
    return records.filter(threat=threat, defence=defence).to_dict(as_series=False)


def close(found: list, expected: Tensor | np.ndarray, tolerance: float = 1e-6) -> None:
    """Numbers, and nothing exactly where NaN is expected."""
    values = torch.as_tensor(expected).tolist()
    assert [each is None for each in found] == [math.isnan(each) for each in values]
    assert [each for each in found if each is not None] == pytest.approx(
        [each for each in values if not math.isnan(each)], abs=tolerance
    )


def of(table: Tensor, column: Tensor) -> Tensor:
    return torch.stack([row[int(place)] for row, place in zip(table, column, strict=True)])


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> drq.Run:
    spec = ours(defences=DEFENCES, threats={"clean": None, "PGD": Trial(PGD, suite="attacks")}, seed=5)
    return drq.evaluate(spec, tmp_path_factory.mktemp("whole"))


@pytest.mark.parametrize("threat", ["clean", "PGD"])
class TestRows:
    """Against the same computation by hand, on the whole batch."""

    def moved(self, threat: str) -> Tensor:
        return X if threat == "clean" else PGD(MODEL, X, Y, index=INDEX)

    def test_what_is_said_of_the_model(self, whole: drq.Run, threat: str) -> None:
        moved = self.moved(threat)
        with torch.no_grad():
            logits = MODEL(moved).double()
        first, second = logits.sort(descending=True).values[:, :2].unbind(1)
        change = (moved - X).flatten(1).double()
        for defence in DEFENCES:
            found = rows(whole.records, threat, defence)
            assert found["index"] == INDEX.tolist()
            assert found["label"] == Y.tolist()
            assert found["base_prediction"] == logits.argmax(1).tolist()
            assert found["base_withstood"] == (logits.argmax(1) == Y).tolist()
            close(found["confidence"], logits.exp().amax(1) / logits.exp().sum(1))
            close(found["logit_margin"], first - second)
            close(found["distance_linf"], change.abs().amax(1))
            close(found["distance_l2"], (change**2).sum(1).sqrt())
            assert set(found["threat_passes"]) == {0.0 if threat == "clean" else 5.0}  # one a step, one at the last point
            assert set(found["threat_radius"]) == {None if threat == "clean" else 0.15}
            assert set(found["suite"]) == {"clean" if threat == "clean" else "attacks"}

    def test_what_the_model_alone_answers(self, whole: drq.Run, threat: str) -> None:
        found = rows(whole.records, threat, "standard")
        assert found["prediction"] == found["base_prediction"]
        assert set(found["passes"]) == {1}
        for name in ("robustness", "true_robustness", "explored", "margin", "radius", "found", "candidates", "cosine", "alpha"):
            assert set(found[name]) == {None}, name

    @pytest.mark.parametrize("defence", ["calibrated", "fixed"])
    def test_what_drq_answers(self, whole: drq.Run, threat: str, defence: str) -> None:
        moved, found = self.moved(threat), rows(whole.records, threat, defence)
        decision = drq.DRQ(MODEL, **DEFENCES[defence], keep_points=True).decide(moved)
        assert found["prediction"] == decision.label.tolist()
        assert found["passes"] == decision.passes.tolist()
        assert found["candidates"] == decision.reached.sum(1).tolist()
        assert found["found"] == decision.found.tolist()
        close(found["radius"], torch.where(decision.found, decision.radius, torch.nan))
        close(found["margin"], decision.margin)
        close(found["robustness"], of(decision.robustness, decision.label))
        close(found["true_robustness"], of(decision.robustness, Y))
        close(found["explored"], of(decision.explored_confidence, decision.label))
        close(found["true_explored"], of(decision.explored_confidence, Y))
        close(found["cosine"], self.cosines(moved, decision), tolerance=1e-5)
        assert found["prediction"] != found["base_prediction"]  # else the test could not tell them apart
        assert found["robustness"] != found["true_robustness"]
        assert len(set(found["found"])) == (2 if defence == "calibrated" else 1)

    def cosines(self, moved: Tensor, decision: drq.Decision) -> np.ndarray:
        """Sample by sample in numpy."""
        angles = []
        for place in range(COUNT):
            change = (moved - X)[place].double().numpy().ravel()
            way = (decision.quantified[place, int(decision.label[place])] - moved[place]).double().numpy().ravel()
            lengths = np.linalg.norm(change) * np.linalg.norm(way)
            angles.append(change @ way / lengths if lengths > 0 else math.nan)  # no length is above 0 where there is no way
        return np.array(angles)

    @pytest.mark.parametrize("defence", list(DEFENCES))
    def test_rounded_to_8_bits(self, whole: drq.Run, threat: str, defence: str) -> None:
        rounded = torch.round(self.moved(threat) * 255) / 255
        asked = MODEL if defence == "standard" else drq.DRQ(MODEL, **DEFENCES[defence])
        answer = asked(rounded).argmax(1) if defence == "standard" else asked.decide(rounded).label
        found = rows(whole.records, threat, defence)
        assert found["rounded_prediction"] == answer.tolist()
        assert found["survives_rounding"] == [
            a == b for a, b in zip(found["rounded_prediction"], found["prediction"], strict=True)
        ]

    def test_settings_and_provenance(self, whole: drq.Run, threat: str) -> None:
        records = whole.records.filter(threat=threat)
        settings = ["explore_steps", "quantify_steps", "alpha", "threshold"]
        told = {each["defence"]: [each[name] for name in settings] for each in records.iter_rows(named=True)}
        assert told == {"standard": [None] * 4, "calibrated": [4, 3, 0.4, 0.97], "fixed": [4, 3, 0.5, None]}
        expected = {
            **{"experiment": "run", "model": "mine", "data": "mine", "victim": "base", "seed": 5, "precision": "float32"},
            **{"device": "cpu", "spec_hash": whole.about["spec_hash"], "weights_sha256": weights.contents(MODEL.state_dict())},
            **{
                "data_sha256": hashlib.sha256(X.numpy().tobytes() + Y.numpy().tobytes()).hexdigest(),
                "drq_version": drq.__version__,
                "torch_version": torch.__version__.partition("+")[0],
            },
            "schema_version": 2,
        }
        assert {name: set(records[name]) for name in expected} == {name: {value} for name, value in expected.items()}
        assert all(0 < each < 60 for each in records["seconds"])


def test_rounding_decides_and_can_be_left_out(tmp_path: Path) -> None:
    """A model that changes its mind at 0.3015, between 0.3011 and its nearest 8-bit value, 77/255."""
    step = nn.Sequential(nn.Flatten(), nn.Linear(1, 2)).eval()
    step[1].weight.data, step[1].bias.data = torch.tensor([[0.0], [1e4]]), torch.tensor([0.0, -3015.0])
    data = TensorDataset(torch.tensor([0.3011, 0.3019, 77 / 255, 0.0]).view(4, 1, 1, 1), torch.tensor([0, 1, 1, 0]))
    given = {"models": {"mine": step}, "data": {"mine": data}, "defences": {"standard": {}}}
    found = drq.evaluate(Spec(**given), tmp_path / "a").records
    assert found["prediction"].to_list() == [0, 1, 1, 0]
    assert found["rounded_prediction"].to_list() == [1, 1, 1, 0]
    assert found["survives_rounding"].to_list() == [False, True, True, True]
    left_out = drq.evaluate(Spec(**given, rounding=False), tmp_path / "b").records
    assert set(left_out["rounded_prediction"]) == set(left_out["survives_rounding"]) == {None}


def test_each_row_once_and_in_order(tmp_path: Path) -> None:
    """By loops in plain Python: task by task, shard by shard, defence by defence, sample by sample."""
    other = network(1)
    spec = ours(
        models={"mine": MODEL, "other": other},
        data={"mine": DATA, "few": images(other, 5)},
        threats={"clean": None, "noise": "gaussian_noise", "own": Trial(PGD, "defence", limit=4)},
        defences={"standard": {}, "again": {"defence": "standard"}},
        shard=7,
    )
    expected = []
    for model in ("mine", "other"):
        for data, count in (("mine", COUNT), ("few", 5)):
            for threat in ("clean", "noise"):
                for first in range(0, count, 7):
                    for defence in ("standard", "again"):
                        expected += [(model, data, threat, "base", defence, i) for i in range(first, min(first + 7, count))]
            for defence in ("standard", "again"):
                expected += [(model, data, "own", "defence", defence, i) for i in range(4)]
    records = drq.evaluate(spec, tmp_path).records
    assert records.select("model", "data", "threat", "victim", "defence", "index").rows() == expected
    assert records.select(KEY).is_duplicated().sum() == 0
    assert records.columns == list(COLUMNS)


def test_the_defence_is_attacked_where_it_is_the_victim(tmp_path: Path) -> None:
    threat = threats.PGD("linf", 0.15, 3)
    both = {"base": Trial(threat, "base"), "own": Trial(threat, "defence")}
    run = drq.evaluate(ours(threats=both, defences={"standard": {}, "fixed": FIXED}, limit=8, keep_images=True), tmp_path)
    robust = drq.DRQ(MODEL, **FIXED, prune="none")  # with "exact" the scores of pruned classes would mislead the attack
    expected = [threat(victim, X[:8], Y[:8]) for victim in (MODEL, MODEL, robust)]
    assert [(each["threat"], each["defences"]) for each in run.about["tasks"]] == [
        ("base", ["standard", "fixed"]),
        ("own", ["standard"]),
        ("own", ["fixed"]),
    ]
    for number, points in enumerate(expected):
        np.testing.assert_allclose(run.images(number), points, atol=1e-6)
    assert not torch.equal(expected[1], expected[2])
    close(rows(run.records, "own", "fixed")["distance_l2"], (expected[2] - X[:8]).flatten(1).norm(dim=1))
    assert rows(run.records, "own", "fixed")["prediction"] == robust.decide(expected[2]).label.tolist()


def test_a_pursuit_tells_whether_the_model_withstood_it(tmp_path: Path) -> None:
    """It reads the defence as it is; the model in it may fall at points that are not the last."""
    threat, wide = threats.Transfer("linf", 0.15, threats.APGD("linf", 0.15, 5)), FIXED | {"radius": 0.6}
    spec = ours(threats={"own": Trial(threat, "defence")}, defences={"wide": wide})
    found = rows(drq.evaluate(spec, tmp_path).records, "own", "wide")
    standing = threat.run(drq.DRQ(MODEL, **wide), X, Y, index=INDEX)
    assert found["prediction"] == drq.DRQ(MODEL, **wide).decide(standing.x).label.tolist()
    right = MODEL(standing.x).argmax(1) == Y
    assert found["base_withstood"] == (right & ~standing.static_fooled).tolist()
    assert found["base_withstood"] != right.tolist()
    close(found["threat_passes"], standing.passes)


def darker(x: Tensor) -> Tensor:
    """A front."""
    return 0.8 * x + 0.1


def test_later_samples_behind_a_front(tmp_path: Path) -> None:
    """Row by row what direct calls say about samples 9 to 14, also where the defence is attacked and where images are kept."""
    table = {"norm": "linf", "radius": 0.2, "front": darker, **FEW}
    trials = {"clean": None, "PGD": PGD, "own": Trial(PGD, victim="defence")}
    given = {"models": {"a": MODEL}, "data": {"x": images(MODEL)}, "threats": trials, "defences": {"DRQ": table}}
    run = drq.evaluate(Spec(**given, first=9, limit=6, shard=4, keep_images=3, rounding=False), tmp_path)
    assert [task["samples"] for task in run.about["tasks"]] == [6, 6, 6]
    robust = drq.DRQ(MODEL, "linf", 0.2, front=darker, **FEW)
    x, y = images(MODEL)[9:15]
    victims = {"clean": None, "PGD": MODEL, "own": robust.variant(prune="none")}
    for number, (threat, victim) in enumerate(victims.items()):
        shifted = x if victim is None else PGD(victim, x, y)
        rows = run.records.filter(pl.col("threat") == threat).sort("index")
        assert rows["index"].to_list() == [*range(9, 15)]
        assert rows["label"].to_list() == y.tolist()
        assert rows["prediction"].to_list() == robust.decide(shifted).label.tolist()
        assert rows["base_prediction"].to_list() == MODEL(shifted).argmax(1).tolist()
        assert rows["cosine"].null_count() + rows["cosine"].is_nan().sum() == 6  # behind a front there is no way from the input
        np.testing.assert_allclose(run.images(number), shifted[:3].numpy(), atol=1e-6)
    shown = examples(run, run.records, each=2)
    assert {each["title"] for each in shown} <= {f"{threat}, image {index} of x" for threat in victims for index in (9, 10, 11)}


def test_costly_attacks_are_on_the_first_samples_that_are_asked_for(tmp_path: Path) -> None:
    asked = threats.DecisionBased("linf", 0.15, queries=20)
    given = {"models": {"a": MODEL}, "data": {"x": images(MODEL, 70)}, "threats": {"asked": Trial(asked, victim="defence")}}
    run = drq.evaluate(Spec(**given, defences={"standard": {}}, first=60, limit=8, shard=4), tmp_path)
    assert run.records["threat_passes"].max() > 10  # every third is wrong already


def test_parts_of_a_spec_are_put_together(tmp_path: Path) -> None:
    """In one directory one after the other, or in two whose files are then copied into one: the rows are those of one call."""
    spec = Spec(
        models={"a": MODEL, "b": network(2)}, data={"x": images(MODEL)}, defences={"standard": {}}, shard=10, name="parts"
    )
    whole = drq.evaluate(spec, tmp_path / "whole").records.select(*KEY, "prediction")
    first = drq.evaluate(spec, tmp_path / "one", only="a")
    assert set(first.records["model"]) == {"a"}
    assert drq.evaluate(spec, tmp_path / "one").records.select(*KEY, "prediction").equals(whole)
    for only in "ab":
        drq.evaluate(spec, tmp_path / f"only-{only}", only=only)
    copytree(tmp_path / "only-b", tmp_path / "only-a", dirs_exist_ok=True)
    events: list[str] = []
    both = drq.evaluate(spec, tmp_path / "only-a", tell=lambda event: events.append(event.what))
    assert "shard" not in events  # nothing was left to do
    assert both.records.select(*KEY, "prediction").equals(whole)
    refused(
        drq.evaluate,
        spec,
        tmp_path / "none",
        only="c",
        words=["only must be a model, data, a threat or a victim of the spec, got 'c'"],
    )


def test_victims_are_parts_of_a_spec(tmp_path: Path) -> None:
    asked = Trial(threats.DecisionBased("linf", 0.15, queries=5), victim="defence")
    given = {"models": {"a": MODEL}, "data": {"x": images(MODEL)}, "threats": {"clean": None, "asked": asked}, "limit": 2}
    spec = Spec(**given, defences={"one": {"defence": "standard"}, "two": {"defence": "standard"}})
    records = drq.evaluate(spec, tmp_path, only="two").records
    assert set(records["threat"]) == {"asked"}  # clean images are no attack on it
    assert set(records["defence"]) == {"two"}


def test_limits(tmp_path: Path) -> None:
    """The threat's own, else the group's, else the spec's; never more than there is."""
    few = {"models": ["mine"], "data": ["mine"], "limit": 5}
    tables = {"clean": None, "own": Trial(limit=3), "all": Trial(limit=1000)}
    records = drq.evaluate(
        ours(
            groups=[few, {"models": ["other"], "data": ["mine"]}], models={"mine": MODEL, "other": MODEL}, threats=tables, limit=8
        ),
        tmp_path,
    ).records
    counts = {tuple(each[:2]): each[2] for each in records.group_by("model", "threat").len().rows()}
    expected = {"mine": {"clean": 5, "own": 3, "all": COUNT}, "other": {"clean": 8, "own": 3, "all": COUNT}}
    assert counts == {(model, threat): count for model, each in expected.items() for threat, count in each.items()}


@pytest.mark.parametrize("keep", [0, 5, 9, True])
def test_images_are_kept_as_the_threat_left_them(keep: int | bool, tmp_path: Path) -> None:
    noise = threats.Corruption("gaussian_noise", 3, seed=7)
    run = drq.evaluate(
        ours(
            threats={"noise": {"threat": "gaussian_noise", "severity": 3}, "clean": Trial(limit=3)},
            seed=7,
            keep_images=keep,
            shard=4,
        ),
        tmp_path,
    )
    count = COUNT if keep is True else int(keep)
    expected = noise(None, X, None, index=INDEX)[:count]
    assert run.images(0).shape == ((count, 1, 4, 4) if count else (0,))
    assert torch.equal(torch.tensor(run.images(0)).view_as(expected), expected)
    assert len(run.images(1)) == min(count, 3)


def state(model: nn.Module) -> list:
    """All that could be changed about a model."""
    return [
        *((name, sorted(vars(each)), each.training, len(each._forward_hooks)) for name, each in model.named_modules()),
        *(
            (name, each.tolist(), each.requires_grad, each.grad, str(each.device), each.dtype)
            for name, each in model.named_parameters()
        ),
    ]


def test_what_is_handed_in_stays_as_it_was(tmp_path: Path) -> None:
    model = network().train()
    data = images(model)
    before, held, drawn = state(model), [each.clone() for each in data.tensors], torch.random.get_rng_state()
    with threads(2):
        spec = ours(
            models={"mine": model}, data={"mine": data}, defences=DEFENCES, threats={"PGD": PGD}, precision="bfloat16", limit=4
        )
        drq.evaluate(spec, tmp_path)
        assert torch.get_num_threads() == 2
    assert state(model) == before
    assert all(torch.equal(old, new) for old, new in zip(held, data.tensors, strict=True))
    assert torch.equal(torch.random.get_rng_state(), drawn)
    assert torch.is_grad_enabled()


def test_threads_are_those_of_the_spec(tmp_path: Path) -> None:
    seen: list[int] = []

    class Watching(Wrapper):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(torch.get_num_threads())
            return self.model(x)

    before = torch.get_num_threads()
    drq.evaluate(ours(defences={"watching": Watching}, threads=3, limit=2), tmp_path)
    assert set(seen) == {3}
    assert torch.get_num_threads() == before


def test_the_weights_are_told_by_their_values(tmp_path: Path) -> None:
    """A card may come from before the last training."""
    model = network()
    model.card = Card("mine", sha256="0" * 64)
    (sha256,) = set(drq.evaluate(ours(models={"mine": model}, limit=2), tmp_path).records["weights_sha256"])
    assert sha256 == weights.contents(MODEL.state_dict())


@pytest.mark.parametrize("size", [1, 3])
def test_rows_do_not_depend_on_the_shards(size: int, tmp_path: Path) -> None:
    tables = {
        "clean": None,
        "restarts": threats.PGD("l2", 0.5, 3, restarts=2),
        "APGD": threats.APGD("linf", 0.15, 4),
        "square": threats.SquareAttack("linf", 0.15, queries=10),
        "noise": "gaussian_noise",
        "rotation": threats.Rotation(20, worst_of=3),
        "own": Trial(threats.PGD("linf", 0.15, 2), "defence"),
    }
    assert not any(isinstance(each, threats.Threat) and each.batch_dependent for each in tables.values())
    few = {"standard": {}, "fixed": FIXED}
    whole, cut = (
        drq.evaluate(ours(threats=tables, defences=few, shard=shard, limit=4), tmp_path / str(shard)).records.sort(KEY)
        for shard in (COUNT, size)
    )
    for name, column in COLUMNS.items():
        if column.kind == "number" and name != "seconds":
            close(cut[name].to_list(), whole[name].fill_null(math.nan).to_torch(), tolerance=1e-4)
        elif name not in ("seconds", "spec_hash"):
            assert cut[name].to_list() == whole[name].to_list(), name


def test_data_of_some_classes_is_judged_on_those(tmp_path: Path) -> None:
    """As with ImageNet-R: other logits do not count, and labels are positions among those that do."""
    model, shown = network(2, classes=6), (1, 3, 4)
    cut = Subset(model, shown)
    with torch.no_grad():
        best = cut(X).argmax(1)
        assert (model(X).argmax(1) != torch.tensor(shown)[best]).any()
    names = tuple("abcdef")
    data = Data("some", Held(X, torch.tensor(shown)[(best + INDEX % 2) % 3]), names, subset=shown)
    run = drq.evaluate(
        ours(models={"mine": model}, data={"some": data}, defences={"standard": {}, "fixed": FIXED}, shard=10), tmp_path
    )
    assert rows(run.records, "clean", "standard")["prediction"] == best.tolist()
    assert rows(run.records, "clean", "standard")["label"] == ((best + INDEX % 2) % 3).tolist()
    assert rows(run.records, "clean", "fixed")["prediction"] == drq.DRQ(cut, **FIXED).decide(X).label.tolist()
    assert set(run.records["data_sha256"]) == {data.sha256}


def test_a_model_runs_in_the_precision_of_the_spec(tmp_path: Path) -> None:
    found = rows(drq.evaluate(ours(precision="bfloat16", defences=DEFENCES), tmp_path).records, "clean", "fixed")
    with torch.no_grad():
        exact, rounded = MODEL(X).double(), InPrecision(MODEL, torch.bfloat16)(X).double()
    close(found["confidence"], rounded.softmax(1).amax(1))
    assert (rounded.softmax(1).amax(1) - exact.softmax(1).amax(1)).abs().max() > 1e-4
    assert found["prediction"] == drq.DRQ(MODEL, **FIXED, precision="bfloat16").decide(X).label.tolist()
    assert set(found["precision"]) == {"bfloat16"}


def test_drq_follows_the_training_of_the_model(tmp_path: Path) -> None:
    """The digits by name: twice the radius of the training in its norm; a radius of its own for every sample in another."""
    few = {"explore": {"search": "Gradient", "steps": 2}, "quantify": {"search": "Gradient", "steps": 2}}
    table = {"models": ["digits"], "data": ["digits"], "limit": 4, "rounding": False}
    defences = {"drq": few, "l2": {"norm": "l2", **few}, "guarded": {"preset": "guarded", **few}}
    records = drq.evaluate({**table, "defences": defences}, tmp_path).records
    model, (x, _) = drq.load_model("digits"), drq.load_data("digits").batch(range(4))
    for name, reach in {"drq": 2, "guarded": 1}.items():
        assert set(np.float32(rows(records, "clean", name)["radius"])) == {np.float32(reach * model.card.radius)}
    expected = drq.calibrate(model, x, "l2")[0]
    close(rows(records, "clean", "l2")["radius"], torch.where(expected < torch.inf, expected, torch.nan))
    assert set(records["data_sha256"]) == {drq.load_data("digits").sha256}


def test_inputs_that_are_no_images(tmp_path: Path) -> None:
    data = TensorDataset(X.flatten(1), Y)
    records = drq.evaluate(ours(data={"mine": data}, defences=DEFENCES, threats={"PGD": PGD}), tmp_path).records
    assert set(records["rounded_prediction"]) == {None}
    assert rows(records, "PGD", "fixed")["prediction"] == drq.DRQ(MODEL, **FIXED).decide(PGD(MODEL, X, Y)).label.tolist()


def test_events_tell_how_far_it_is(tmp_path: Path) -> None:
    heard: list = []
    drq.evaluate(ours(shard=10, threats={"clean": None, "fog": {}}), tmp_path, tell=heard.append)
    heard = [each for each in heard if each.what != "begin"]
    assert [each.what for each in heard] == ["start", *["shard"] * 6, "done"]
    assert [each.done for each in heard] == [0, 10, 20, 24, 34, 44, 48, 48]
    assert {each.total for each in heard} == {48}
    assert (heard[0].left, heard[-1].left) == (math.inf, 0)
    assert all(each.rate > 0 and each.left >= 0 for each in heard[1:])
    assert [each.text for each in (heard[0], heard[1], heard[-1])] == ["a new run", "mine on mine, clean", "48 of 48 samples"]


def test_what_is_said_of_a_run(tmp_path: Path) -> None:
    spec = ours(title="Mine", limit=5)
    run = drq.evaluate(spec, tmp_path)
    about = json.loads((tmp_path / "run.json").read_text())
    assert about == run.about
    assert about["spec"] == spec.contents
    assert (about["title"], about["spec_hash"], about["missing"]) == ("Mine", spec.hash, [])
    assert about["models"] == {"mine": weights.contents(MODEL.state_dict())}
    task = {"model": "mine", "data": "mine", "threat": "clean", "victim": "base", "defences": ["standard"], "images": COUNT}
    task |= {"number": 0, "first": 0, "limit": 5, "samples": 5, "row_hashes": [*run.records["row_hash"].unique()]}
    assert about["tasks"] == [task]
    (line,) = run.history
    assert (line["engine"], line["samples"], line["seconds"] >= 0) == ("local", 5, True)


def test_a_run_lies_under_the_name_of_its_spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert drq.evaluate(ours(name="my run", limit=1)).path == Path("runs/my run")
    assert drq.Run.open("runs/my run").name == "my run"


class Faulty(Dataset):
    """Data whose last item is not there."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, position: int) -> tuple[Tensor, int]:
        if position == COUNT - 1:
            raise self.error
        return X[position], int(Y[position])


def test_errors_while_it_runs(tmp_path: Path) -> None:
    """A caller's mistake says where; what the caller's own code raises stays as it is. Data is read before anything runs."""
    refused(
        drq.evaluate,
        ours(data={"mine": Faulty(drq.InputError("item must be there, got none: add it"))}, shard=10),
        tmp_path / "a",
        words=["mine on mine: item must be there"],
    )
    lost = OSError(5, "Input/output error")
    with pytest.raises(OSError, match="Input/output") as caught:
        drq.evaluate(ours(data={"mine": Faulty(lost)}, shard=10), tmp_path / "b")
    assert caught.value is lost  # and not that the directory of the run cannot be written
    assert not [*tmp_path.iterdir()]
    late = TensorDataset(X, torch.where(INDEX == COUNT - 1, 9, Y))
    refused(
        drq.evaluate,
        ours(data={"mine": late}, defences=DEFENCES, shard=10, limit=None),
        tmp_path / "c",
        words=["mine on mine, clean: labels must lie below 4, the model's classes, got 9"],
    )


def test_what_turns_out_to_be_missing_is_said_once_and_the_rest_runs(tmp_path: Path) -> None:
    """As an attack whose package is not installed."""

    @dataclass(frozen=True)
    class Absent(threats.Corruption):
        def shift(self, *arguments: object) -> None:
            raise MissingError("nothing must be installed, got none: install it")

    heard: list = []
    run = drq.evaluate(ours(threats={"absent": Absent("fog"), "clean": None}, shard=10), tmp_path, tell=heard.append)
    why = "nothing must be installed, got none: install it"
    assert [each.text for each in heard if each.what == "missing"] == [f"mine on mine, absent: {why}"]
    assert run.about["missing"] == [{"what": "mine on mine, absent", "why": why}]
    assert drq.Run.open(tmp_path).about == run.about
    assert Counter(run.records["threat"]) == {"clean": COUNT}


def test_data_that_cannot_be_a_key(tmp_path: Path) -> None:
    @dataclass
    class Items(Dataset):
        x: Tensor

        def __len__(self) -> int:
            return len(self.x)

        def __getitem__(self, position: int) -> tuple[Tensor, int]:
            return self.x[position], 0

    assert drq.evaluate(ours(data={"mine": Items(X)}), tmp_path).records.height == COUNT


def test_other_programs_read_the_records(tmp_path: Path) -> None:
    spec = ours(defences=DEFENCES, threats={"clean": None, "PGD": PGD, "noise": "gaussian_noise"}, shard=10)
    run = drq.evaluate(spec, tmp_path)
    records, files = run.records, f"{tmp_path}/records/*.parquet"
    assert len(list((tmp_path / "records").iterdir())) == 3
    right = "sum((prediction = label)::int)"
    grouped = f"select threat, defence, count(*), {right}, count(radius) from read_parquet(?) group by all order by all"
    counts = (pl.len(), (pl.col("prediction") == pl.col("label")).sum(), pl.col("radius").count())
    assert duckdb.execute(grouped, [files]).fetchall() == sorted(records.group_by("threat", "defence").agg(*counts).rows())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of pandas and pyarrow about each other
        frame = pandas.concat([pandas.read_parquet(path) for path in sorted((tmp_path / "records").iterdir())])
    assert list(frame.columns) == records.columns
    assert len(frame) == records.height == COUNT * 3 * 3
    assert frame["prediction"].tolist() == records["prediction"].to_list()
    assert frame["radius"].isna().sum() == records["radius"].null_count()


def test_handed_data_is_told_by_what_is_used_of_it(tmp_path: Path) -> None:
    """Other values are other data, though there are as many; what lies beyond the limit does not count."""
    run = drq.evaluate(ours(limit=10), tmp_path)
    beyond = X.clone()
    beyond[15:] = 0.5
    assert drq.evaluate(ours(limit=10, data={"mine": TensorDataset(beyond, Y)}), tmp_path).records.equals(run.records)
    words = ["the content of mine was", "choose another directory"]
    refused(drq.evaluate, ours(limit=10, data={"mine": TensorDataset(1 - X, Y)}), tmp_path, words=words)
    refused(drq.evaluate, ours(limit=10, data={"mine": TensorDataset(X, (Y + 1) % 4)}), tmp_path, words=words)


def test_a_model_is_looked_at_before_it_runs(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    nan = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(X[0].numel(), 4))
    torch.nn.init.constant_(nan[1].bias, torch.nan)
    refused(drq.evaluate, ours(models={"mine": nan.eval()}), tmp_path / "a", words=["mine must return finite logits"])
    drq.evaluate(ours(models={"mine": torch.nn.Sequential(MODEL, torch.nn.Softmax(1)).eval()}), tmp_path / "b")
    assert "mine returns looks like probabilities" in caplog.text
    drq.evaluate(ours(), tmp_path / "c")
    assert caplog.text.count("probabilities") == 1
    refused(ours, defences={"mine": MODEL}, words=["defences.mine must be a function of the model", "lambda model"])
