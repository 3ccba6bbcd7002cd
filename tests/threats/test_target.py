"""A defence as its attacker sees it: what it answers, what it is refused for, DRQ among them."""

import pytest
import torch
from testbed.classifiers import inputs, network
from testbed.planted import SHORT, SPACE, Cut, Label, Plant, X, Y, cut
from torch import Tensor

import drq
from drq import threats
from drq.method.adapters import Wrapper
from drq.threats.drq_target import two_class_objective
from drq.threats.pursuit import as_target


@pytest.mark.parametrize(
    "change",
    [
        {"explore_base": False},
        {"frozen": torch.tensor([True, False, False, False])},
        {"precision": "bfloat16"},
        {"bounds": (0.2, 0.8)},
        {"alpha": 0.2},
    ],
    ids=lambda change: next(iter(change)),
)
def test_the_duel_heeds_every_setting_of_the_defence(change: dict[str, object]) -> None:
    model, x = network(1).float(), inputs(1, 30, 4).float() * 0.6 + 0.2
    robust = drq.DRQ(model, "linf", 0.3, explore=SHORT, quantify=SHORT, prune="none").variant(**change)
    decision = robust.decide(x)
    first, second = decision.log_odds.topk(2, dim=1).indices.unbind(1)
    reached = decision.reached.gather(1, second[:, None])[:, 0]
    value = two_class_objective(robust.classifier, [robust], first, second, decision.radius)(x).value
    lead = (decision.log_odds.gather(1, first[:, None]) - decision.log_odds.gather(1, second[:, None]))[:, 0]
    if robust.precision != "float32":  # near ties were decided again in float32, which this objective does not do
        reached &= lead > 8 * torch.finfo(torch.bfloat16).eps * model(x).detach().abs().amax(1)
    assert reached.sum() >= 5
    torch.testing.assert_close(value[reached], lead[reached], rtol=0, atol=1e-4)


class Scripted(Cut):
    """A random defence whose next labels are written down."""

    random = True

    def decide(self, x: Tensor) -> Label:
        return Label(torch.full((len(x),), self.script.pop()))


@pytest.mark.parametrize(("wrong", "fooled"), [(10, True), (6, True), (5, False), (0, False)])
def test_more_than_half_of_the_answers_must_be_wrong(wrong: int, fooled: bool) -> None:
    defence = Scripted(cut().model)
    defence.script = [0] * wrong + [1] * (10 - wrong)
    assert as_target(defence).judge(X, Y).fooled.tolist() == [fooled, fooled]  # the scores say otherwise: labels count


def test_rivals_that_were_not_reached_are_ranked_by_the_model() -> None:
    model, x = network(3, classes=6), inputs(3, 20, 4)
    robust = drq.DRQ(model, "linf", 0.0)  # nothing but the base label is reached
    y = model(x).argmax(1)
    assert torch.equal(as_target(robust).judge(x, y).rivals, model(x).argsort(dim=1, descending=True)[:, 1:])


def test_scores_that_attackers_read_are_never_pruned() -> None:
    model, x = network(1, classes=6), inputs(1, 30, 4)
    robust = drq.DRQ(model, "linf", 0.3, explore=SHORT, quantify=SHORT)
    assert robust.prune == "exact"
    exact = robust.variant(prune="none")(x)
    assert not torch.equal(robust(x), exact)
    torch.testing.assert_close(as_target(robust).scores()(x), exact, rtol=0, atol=1e-9)
    assert robust.shortened(3).prune == "none"


def test_an_attacker_follows_in_full_precision_and_is_judged_in_that_of_the_defence() -> None:
    model, x = network(1, classes=6).float(), inputs(1, 30, 4).float()
    plain, rounded = (
        as_target(drq.DRQ(model, "linf", 0.3, explore=SHORT, quantify=SHORT, precision=each)) for each in ("float32", "bfloat16")
    )
    y, rival = model(x).topk(2).indices.unbind(1)
    radius = torch.full_like(x[:, 0], 0.3)
    for steps in ((3,), (2, 3)):
        assert torch.equal(*(each.contest(y, rival, radius, *steps)(x).value for each in (plain, rounded)))
        assert torch.equal(*(each.scores(*steps)(x) for each in (plain, rounded)))
    assert torch.equal(*(each.contest(y, rival, radius)(x).value for each in (plain, rounded)))
    assert not torch.equal(*(each.scores()(x) for each in (plain, rounded)))
    assert not torch.equal(*(each.judge(x, y).lead for each in (plain, rounded)))


def test_leads_and_rivals_are_not_those_of_upper_bounds() -> None:
    """Exact pruning leaves losers with their explored confidence; the verdict must read as if nothing had been pruned."""
    model, x = network(1, classes=6), inputs(1, 300, 4)
    y, robust = model(x).argmax(1), drq.DRQ(model, "linf", 0.3, explore=SHORT, quantify=SHORT)
    ours, full = (as_target(each).judge(x, y) for each in (robust, robust.variant(prune="none")))
    assert (robust.decide(x).exact.sum(1) < 6).double().mean() > 0.2  # something was pruned
    stands = ~full.fooled
    torch.testing.assert_close(ours.lead[stands], full.lead[stands], rtol=0, atol=1e-9)
    assert torch.equal(ours.rivals[stands, 0], full.rivals[stands, 0])
    assert torch.equal(ours.fooled, full.fooled)


class Forgetful(Cut):
    """Answers in the wrong form, or with the help of gradients that nobody switched on for it."""

    def __init__(self, answer: object) -> None:
        super().__init__(cut().model)
        self.answer = answer

    def decide(self, x: Tensor) -> object:
        return self.answer(super().forward(x)) if callable(self.answer) else self.answer


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda scores: Label(scores.argmax(1).tolist()), "label must be a tensor of one whole number for each sample, got list"),
        (
            lambda scores: Label(scores.argmax(1)[:, None]),
            "label must be a tensor of one whole number for each sample, got torch.int64",
        ),
        (
            lambda scores: Label(scores.argmax(1).double()),
            "label must be a tensor of one whole number for each sample, got torch.float64",
        ),
        (lambda scores: scores.argmax(1), "decide.x. must return something with a label, got Tensor"),
    ],
)
def test_answers_in_the_wrong_form_are_refused(answer: object, message: str) -> None:
    with pytest.raises(drq.InputError, match=message):
        threats.Chain(members=(Plant(by=0.1, starts=[], **SPACE),), **SPACE).run(Forgetful(answer), X, Y)


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        (lambda x: x[:1], r"^model\(x\) must be scores of shape \(N, C\), got shape \(1, 2\)"),
        (lambda x: (x, x), r"^model\(x\) must be scores of shape \(N, C\), got tuple"),
        (lambda x: x / 0, r"^model\(x\) must be finite, got NaN or infinity"),
    ],
)
def test_scores_in_the_wrong_form_are_refused(scores: object, message: str) -> None:
    defence = cut()
    defence.forward = scores
    with pytest.raises(drq.InputError, match=message):
        threats.Chain(members=(Plant(by=0.1, starts=[], **SPACE),), **SPACE).run(defence, X, Y)


def test_a_defence_without_its_model_or_in_training_mode_is_refused() -> None:
    class Bare(torch.nn.Module):
        def decide(self, x: Tensor) -> Label:
            return Label(x.argmax(1))

    member = Plant(by=0.1, starts=[], **SPACE)
    with pytest.raises(drq.InputError, match=r"^model\.model must be a torch\.nn\.Module, got NoneType"):
        member.run(Bare().eval(), X, Y)
    with pytest.raises(drq.InputError, match=r"^model must be in evaluation mode"):
        member.run(cut().train(), X, Y)


def test_models_called_by_keyword_are_counted() -> None:
    class Named(Cut):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) + 0 * self.model(input=x)

    target = as_target(Named(cut().model))
    with target.counting_rows() as meter:
        target.defence(X)
    assert meter.rows == 2


def test_scores_whose_slope_is_zero_are_noticed() -> None:
    class Flat(Cut):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x.detach()) + 0 * x.sum()

    assert not as_target(Flat(cut().model)).has_gradients(X)
    assert as_target(cut()).has_gradients(X)


def test_a_defence_that_only_decides_is_attacked_by_its_labels() -> None:
    class Speechless(Wrapper):
        def decide(self, x: Tensor) -> Label:
            return Label((x[:, 0] >= 0.5).long())

    members = (Plant(by=-0.1, starts=[], **SPACE), threats.DecisionBased(queries=20, **SPACE))
    standing = threats.Chain(members=members, **SPACE).run(Speechless(cut().model), X, Y)
    assert standing.fooled.all()


def test_a_shortened_version_with_gradients_is_followed_where_the_defence_has_none() -> None:
    """A rounding defence whose shortened version lets gradients through: BPDA."""

    class Rounding(Cut):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x).mul(8).round()

        def shortened(self, steps: int) -> Cut:
            return Cut(self.model)

    target = as_target(Rounding(cut().model))
    assert target.has_gradients(X)
    assert threats.FewerSteps("linf", 0.5, 5).run(Rounding(cut().model), X, Y).fooled.all()
