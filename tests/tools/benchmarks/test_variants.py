"""The search for a better DRQ: rules on log-odds that are made up here, and looks at models whose answers are known."""

import json

import numpy as np
import pytest
import torch
from testbed.classifiers import inputs, linear, network

import drq
from drq.models.preact_resnet import PreActResNet18
from drq.models.wide_resnet import WideResNet
from drq.search.loop import State, search
from drq.seeds import generator
from tools.benchmarks import variant_rules, variant_settings, variants

IMAGES, CLASSES = 40, 10


@pytest.fixture(name="kept")
def _kept(tmp_path):
    """Every look is right about its own share of the images, whatever the shift; the paper's about half of them."""
    titles = ["clean", *variant_settings.SHIFTS, "PGD"]
    doors = ("none", "restored", "denoised", "mirrored", "mirrored only", "stretched")
    looks = [f"{front}: {title}" for title, look in variant_settings.VARIANTS.items() for front in look.fronts]
    looks += [f"{front}: alone" for front in doors] + [
        f"none: {title}" for title in (*variant_settings.FEATURES, *variant_settings.NEARBY)
    ]
    source = np.random.default_rng(0)
    labels = source.integers(0, CLASSES, IMAGES)
    odds = source.normal(size=(len(titles), len(looks), 3, IMAGES, CLASSES))
    right = {f"none: {variant_settings.PAPER}": 20, "restored: alone": 36}
    for look, count in right.items():
        odds[:, looks.index(look), :, np.arange(IMAGES), labels] = -50
        odds[:, looks.index(look), :, np.arange(count), labels[:count]] = 50
    odds[titles.index("clean"), looks.index("restored: alone"), :, np.arange(IMAGES), labels] = 50  # no shift, so no gain
    path = tmp_path / "seen.npz"
    about = {"model": "made up", "first": 0, "looks": looks, "passes": np.full(len(looks), 30.0)}
    np.savez_compressed(path, log_odds=odds.astype(np.float16), labels=labels, conditions=titles, **about)
    return path


def test_every_rule_is_compared_with_the_paper_on_the_same_images(kept, tmp_path, capsys):
    variant_rules.attempt(kept, most=3, out=tmp_path / "deep" / "tried.json")
    tried = json.loads((tmp_path / "deep" / "tried.json").read_text())
    assert tried["images"] == IMAGES
    by = {(row["idea"], row["rule"]): row for row in tried["rules"]}
    assert len(by) == len(tried["rules"]) > 200
    paper = by["settings", f"none: {variant_settings.PAPER}"]
    assert (paper["gain"], paper["low"], paper["high"], paper["shifts"], paper["passes"]) == (0, 0, 0, 50, 30)
    assert {idea for idea, _ in by} >= set(variant_settings.IDEAS.values()) | {"alpha per sample", "radius per sample"}
    restored = by["the model behind a front", "restored"]
    half = 1.96 * 100 * (0.4 * 0.6 * IMAGES / (IMAGES - 1)) ** 0.5 / IMAGES**0.5  # 16 of 40 images are right in addition
    assert (restored["gain"], restored["shifts"], restored["clean"], restored["passes"]) == (40, 90, 100, 1)
    assert restored["low"] == pytest.approx(40 - half, abs=1e-3)
    assert [row["shifts"] for row in tried["rules"]] == sorted((row["shifts"] for row in tried["rules"]), reverse=True)
    assert "restored" in capsys.readouterr().out.splitlines()[0]


def test_probabilities_do_not_overflow():
    assert variant_rules.probability(np.array([-1e4, 0.0, 1e4])).tolist() == [0, 0.5, 1]


def test_costs_are_those_of_what_a_rule_asks(kept):
    costs = {(rule.idea, rule.title): rule.passes for rule in variant_rules.rules(variant_rules.Recorded(kept))}
    assert costs["exploration without quantification", "none: linf 16/255, 20 + 20 steps"] == 1 + CLASSES * 21
    assert costs["exploration without quantification", "none: linf 16/255, 1 + 1 steps"] == 1 + CLASSES * 2
    assert ("exploration without quantification", "none: linf 16/255, 1 + 20 steps") not in costs  # explores the same
    assert costs["alpha per sample", "none: alpha 1 where two classes are within 2, else alpha 0.5"] == 30


def test_alpha_may_depend_on_the_sample(kept):
    seen = variant_rules.Recorded(kept)
    rule = next(
        rule for rule in variant_rules.rules(seen) if rule.title == "none: alpha 1 where two classes are within 1, else alpha 0.5"
    )
    half, whole = (seen[f"none: linf 16/255, 1 + 1 steps{alpha}"][2] for alpha in ("", ", alpha 1"))
    alone = seen["none: alone"][0]
    chosen = set()
    for place in np.ndindex(alone.shape[:2]):
        second, best = sorted(alone[place])[-2:]
        chosen.add(best - second < 1)
        np.testing.assert_array_equal(rule.scores[place], (whole if best - second < 1 else half)[place])
    assert chosen == {True, False}


def test_few_classes_are_asked_and_paid_for(kept):
    seen, look = variant_rules.Recorded(kept), f"none: {variant_settings.PAPER}"
    rule = next(rule for rule in variant_rules.rules(seen) if rule.title == f"{look}, 3 classes")
    base, _, quantified = seen[look]
    for place in np.ndindex(base.shape[:2]):
        likeliest = np.argsort(base[place])[-3:]
        assert rule.scores[place].argmax() == max(likeliest, key=lambda label: quantified[place][label])
    assert rule.passes == seen.cost(look)  # 21 + 21 for each of three classes are more than what all took here
    short = "none: linf 16/255, 1 + 1 steps"
    (cost,) = [each.passes for each in variant_rules.rules(seen) if each.title == f"{short}, 2 classes"]
    robust = drq.DRQ(network(0), "linf", 16 / 255, classes=2, explore=drq.Gradient(1), quantify=drq.Gradient(1))
    assert cost == robust.most_passes(CLASSES)


def test_classes_that_were_not_reached_do_not_spoil_what_is_normal():
    scores = np.array(
        [
            [
                [1.0, 10.0, variant_settings.LEAST],
                [3.0, variant_settings.LEAST, variant_settings.LEAST],
                [8.0, 30.0, variant_settings.LEAST],
            ]
        ]
    )
    found = variant_rules.normalise(scores)
    np.testing.assert_allclose(found[0, :, 0], (scores[0, :, 0] - 3) / scores[0, :, 0].std())
    np.testing.assert_allclose(found[0, [0, 2], 1], [-1, 1])
    assert (found[scores == variant_settings.LEAST] < -1000).all()  # still last


def test_looks_at_a_linear_model_are_known():
    weight = torch.tensor([2.0, -3.0, 1.0], dtype=torch.float64)
    x = torch.tensor([[0.5, 0.5, 0.5], [0.4, 0.6, 0.5], [0.6, 0.3, 0.55]], dtype=torch.float64)  # far from the box
    radius, alpha, length = 0.1, 0.5, 6.0
    model = linear(weight, bias=0.1)
    found = variants.nearby(drq.DRQ(model, "linf", radius, alpha=alpha, prune="none"), x)
    odds = (x @ weight + 0.1)[:, None] * torch.tensor([-1.0, 1.0])
    explored = odds + radius * length
    reached = explored > 0
    assert reached.any(0).all()
    assert not reached.all()
    fall = alpha * radius * length
    truth = {"slope at the explored point": explored - fall, "distance to the boundary, 5 steps": explored / fall}
    for title, expected in truth.items():
        torch.testing.assert_close(found[title].quantified, torch.where(reached, expected, -torch.inf), msg=title)
    torch.testing.assert_close(found["slope at the input"].quantified, odds + (1 - alpha) * radius * length)
    several, before = float(reached.sum()) / len(x), 1 + 2 * 2
    assert found["slope at the input"].passes == 2
    assert found["slope at the explored point"].passes == pytest.approx(before + several)
    assert found["mean of 8 random points"].passes == pytest.approx(before + 8 * several)
    walks = torch.where(explored < fall, (explored / fall * 5).floor() + 2, 6)[reached]  # looks until the lead is lost
    assert found["distance to the boundary, 5 steps"].passes == pytest.approx(before + float(walks.sum()) / len(x))
    assert walks.min() < 6


def test_a_boundary_is_found_where_it_is_crossed_and_where_it_would_be():
    weight = torch.tensor([1.0, 2.0], dtype=torch.float64)
    ball = drq.Ball(torch.tensor([[0.5, 0.5], [0.1, 0.5], [-1.0, 0.0]], dtype=torch.float64), 0.25, "l2")
    lead = drq.margin(linear(weight, bias=-0.7), torch.tensor([1, 1, 1]))
    distance, _ = variants.boundary(lead, ball)
    truth = (ball.center @ weight - 0.7).clamp(min=0) / 5**0.5 / 0.25
    assert truth[0] > 1 > truth[1] > truth[2] == 0  # beyond the edge, within, and behind it from the start
    torch.testing.assert_close(distance, truth)


def test_points_around_the_explored_one_count_as_a_loop_counts_them():
    model, x = network(0), 0.4 + 0.2 * inputs(1, 6, 4)
    robust = drq.DRQ(model, "linf", 0.15, explore=drq.Gradient(1), quantify=drq.Gradient(1), prune="none", keep_points=True)
    found, decision = variants.nearby(robust, x), robust.decide(x)
    assert not decision.reached.all()
    for n, label in decision.reached.nonzero().tolist():
        odds = []
        for draw in range(variant_settings.POINTS):
            offset = 2 * torch.rand(1, 4, generator=generator(0, draw), dtype=torch.float64) - 1
            point = decision.explored[n, label] + 0.5 * 0.15 * offset
            share = model(point).detach().softmax(1)[0, label]
            odds.append(float(torch.log(share / (1 - share))))
        assert float(found["mean of 8 random points"].quantified[n, label]) == pytest.approx(np.mean(odds))
        assert float(found["lower quartile of 8 random points"].quantified[n, label]) == pytest.approx(np.quantile(odds, 0.25))


@pytest.mark.parametrize("loss", [drq.margin, drq.dlr])
@pytest.mark.parametrize(("aim", "sign"), [(drq.away_from, 1), (drq.toward, -1)])
def test_another_loss_leads_and_log_odds_decide(loss, aim, sign):
    model, x, label = network(0), inputs(1, 5, 4), torch.tensor([0, 1, 2, 3, 0])
    look = variant_settings.Following(5, loss=loss).observe(aim(model, label), drq.Ball(x, 0.1, "linf"), State(x), 0)
    torch.testing.assert_close(look.score.value, sign * drq.log_odds(model(x), label))
    there = x.clone().requires_grad_()
    logits = model(there)
    top = logits.topk(3).values
    rest = torch.stack([logits[n, [i for i in range(4) if i != label[n]]].max() for n in range(5)])
    value = logits[range(5), label] - rest
    value = value / (top[:, 0] - top[:, 2]) if loss is drq.dlr else value
    torch.testing.assert_close(look.gradient, sign * torch.autograd.grad(value.sum(), there)[0])


def test_several_starts_find_what_the_best_of_them_finds():
    model, x, label = network(0), inputs(1, 5, 4), torch.tensor([0, 1, 2, 3, 0])
    ball, objective, method = (
        drq.Ball(x, 0.3, "linf", (0, 1)),
        drq.away_from(model, label),
        variant_settings.Starts(drq.Gradient(2), 3),
    )
    found = search(method, objective, ball)
    starts = [None, *(ball.sample(generator(0, count)) for count in (2, 5))]
    alone = torch.stack([search(drq.Gradient(2), objective, ball, start=start).value for start in starts])
    torch.testing.assert_close(found.value, alone.amin(0))
    assert found.passes.tolist() == [9] * 5 == [method.passes] * 5
    assert (alone.argmin(0) > 0).any()


@pytest.mark.parametrize("build", [PreActResNet18, lambda: WideResNet(10, 1, activation="silu", stride=2)])
def test_the_parts_of_a_network_are_the_whole(build):
    torch.manual_seed(0)
    network = build().eval()
    for module in network.modules():  # statistics that are not those of a new network
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
    x = torch.rand(2, 3, 32, 32)
    stages, head = variants.parts(network)
    torch.testing.assert_close(torch.nn.Sequential(*stages, head)(x), network(x))
    assert len(stages) > max(cut for cut, _ in variant_settings.FEATURES.values()) - 1


class _Small(torch.nn.Module):
    """Normalised, and with stages named as those of a PreActResNet."""

    def __init__(self):
        super().__init__()
        self.model = torch.nn.Module()
        self.model.conv1 = torch.nn.Conv2d(3, 4, 3, padding=1, bias=False)
        for number in range(1, 5):
            setattr(self.model, f"layer{number}", torch.nn.Conv2d(4, 4, 1))
        self.model.bn, self.model.linear = torch.nn.BatchNorm2d(4), torch.nn.Linear(4, CLASSES)
        self.mean, self.std = 0.5, 0.25

    def forward(self, x):
        whole = torch.nn.Sequential(self.model.conv1, *(getattr(self.model, f"layer{number}") for number in range(1, 5)))
        return self.model.linear(self.model.bn(whole((x - self.mean) / self.std)).relu().mean((2, 3)))


def test_what_is_recorded_can_be_tried(kept, tmp_path, monkeypatch):
    torch.manual_seed(0)
    model, x, y = _Small().eval(), torch.rand(2, 3, 8, 8), torch.tensor([0, 1])
    monkeypatch.setattr(drq, "load_model", lambda _: model)
    monkeypatch.setattr(variants, "conditions", lambda *_: iter([("clean", x, y)]))
    variants.record("small", 0, 2, tmp_path / "seen.npz", "cpu")
    made, expected = variant_rules.Recorded(tmp_path / "seen.npz"), variant_rules.Recorded(kept)
    assert set(made.looks) == set(expected.looks)
    assert len(list(variant_rules.rules(made))) == len(list(variant_rules.rules(expected)))
    assert np.isfinite(made.odds).all()
    base, explored, quantified = made[f"none: {variant_settings.PAPER}"]
    decision = drq.DRQ(model, "linf", 16 / 255, prune="none").decide(x)
    for seen, truth in ((base, decision.base_log_odds), (explored, decision.explored_log_odds), (quantified, decision.log_odds)):
        np.testing.assert_allclose(seen[0], truth.clamp(min=variant_settings.LEAST).numpy(), rtol=1e-3, atol=1e-3)
