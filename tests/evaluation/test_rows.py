"""Every row of an evaluation against a direct computation with the model, the threat and the defence."""

import hashlib
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from testbed.evaluated import (
    COUNT,
    DATA,
    DEFENCES,
    FIXED,
    INDEX,
    KEY,
    MODEL,
    PGD,
    X,
    Y,
    close,
    images,
    network,
    ours,
    rows,
)
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import drq
from drq import Spec, Trial, threats
from drq.data.dataset import Data, InMemory
from drq.evaluation.records import COLUMNS
from drq.method.adapters import Subset
from drq.method.execution import InPrecision
from drq.models import weights


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
        request = MODEL if defence == "standard" else drq.DRQ(MODEL, **DEFENCES[defence])
        answer = request(rounded).argmax(1) if defence == "standard" else request.decide(rounded).label
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
        if column.kind == "float" and name != "seconds":
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
    data = Data("some", InMemory(X, torch.tensor(shown)[(best + INDEX % 2) % 3]), names, subset=shown)
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
