"""Attacks on a defence, watched through a defence of one feature and members that do as they are told."""

import logging
from dataclasses import dataclass, replace
from typing import ClassVar, NamedTuple

import pytest
import torch
from classifiers import inputs, linear, network
from torch import Tensor

import drq
from drq import threats
from drq.adapters import Wrapper
from drq.norms import Ball
from drq.threats import Pursuit, Standing, Target
from drq.threats.duel import duel
from drq.threats.pursuit import ITSELF, NONE, aimed_at

SHORT = drq.Gradient(steps=5)
SPACE = {"norm": "linf", "radius": 0.5}


class Label(NamedTuple):
    label: Tensor


class Cut(Wrapper):
    """Answers class 1 from 0.5 on in the first feature; the model in it from 0.2 on."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([0 * x[:, 0], x[:, 0] - 0.5], 1)

    def decide(self, x: Tensor) -> Label:
        return Label(self(x).argmax(1))


def cut() -> Cut:
    return Cut(linear(torch.tensor([1.0, 0.0], dtype=torch.float64), bias=-0.2))


@dataclass(frozen=True)
class Plant(Pursuit):
    """Moves every sample by so much in the first feature, and remembers where it was told to start."""

    by: float
    starts: list[Tensor]

    def pursue(self, target: Target, ball: Ball, y: Tensor, standing: Standing) -> Tensor:
        self.starts.append(standing.x)
        return ball.center + torch.tensor([self.by, 0.0], dtype=torch.float64)

    def cost(self, target: Target, x: Tensor) -> int:
        return 0


class StaticPlant(Plant):
    follows_static: ClassVar[bool] = True


X, Y = torch.tensor([[0.55, 0.5], [0.9, 0.5]], dtype=torch.float64), torch.ones(2, dtype=torch.long)


def run(*members: Pursuit) -> Standing:
    return threats.Chain(members=members, **SPACE).run(cut(), X, Y)


def test_the_static_model_keeps_whoever_fooled_it_first() -> None:
    standing = run(StaticPlant(by=-0.38, starts=[], **SPACE), StaticPlant(by=-0.39, starts=[], **SPACE))
    assert standing.static_by.tolist() == [0, NONE]
    assert standing.by.tolist() == [0, 1]


def test_what_follows_the_static_model_goes_on_until_that_is_fooled_too() -> None:
    mild, strong = StaticPlant(by=-0.1, starts=[], **SPACE), StaticPlant(by=-0.5, starts=[], **SPACE)
    standing = run(mild, strong)  # the mild one fools the defence on the first sample, not the model in it
    assert standing.static_by.tolist() == [1, NONE]
    assert run(mild, Plant(by=-0.5, starts=[], **SPACE)).static_by.tolist() == [NONE, NONE]


def test_members_start_at_the_best_point_and_only_where_the_defence_stands() -> None:
    last = Plant(by=0.0, starts=[], **SPACE)
    run(Plant(by=-0.1, starts=[], **SPACE), last)
    assert torch.equal(torch.cat(last.starts), torch.tensor([[0.8, 0.5]], dtype=torch.float64))


@pytest.mark.parametrize(
    "member", [threats.Envelope(steps=1, **SPACE), threats.FewerSteps(steps=1, **SPACE), threats.ScoreBased(queries=1, **SPACE)]
)
def test_those_that_search_start_where_others_ended(member: Pursuit) -> None:
    seen = []
    defence = cut()
    target, ball = aimed_at(defence), Ball(X, 0.5, "linf", (0, 1))
    standing = Standing.at(X - 0.05, target.judge(X - 0.05, Y), ITSELF, 0, 1)
    defence.register_forward_pre_hook(lambda _, given: seen.append(given[0].detach().clone()))
    member.pursue(target, ball, Y, standing)
    assert torch.equal(seen[0], X - 0.05)


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
    value = duel([robust], first, second, decision.radius)(x).value
    lead = (decision.log_odds.gather(1, first[:, None]) - decision.log_odds.gather(1, second[:, None]))[:, 0]
    assert reached.sum() >= 5
    torch.testing.assert_close(value[reached], lead[reached], rtol=0, atol=1e-4)


def test_the_static_model_keeps_whoever_fooled_it_first_while_the_defence_stands() -> None:
    defence = Cut(linear(torch.tensor([1.0, 0.0], dtype=torch.float64), bias=-0.7))  # the model is weaker than the defence
    members = [Plant(by=by, starts=[], **SPACE) for by in (-0.3, -0.1, -0.35)]
    standing = threats.Chain(members=tuple(members), **SPACE).run(defence, X[1:], Y[1:])
    assert not standing.fooled.any()
    assert standing.static_by.tolist() == [0]


def test_the_budget_holds_all_verdicts() -> None:
    """The plants cost nothing but their verdicts: three of those fit or do not."""

    class Once(Cut):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) + 0 * self.model(x)

    defence, members = Once(cut().model), tuple(Plant(by=0.0, starts=[], **SPACE) for _ in range(2))
    verdict = aimed_at(defence).verdict_cost(X)
    for budget, run in ((3 * verdict, 2), (3 * verdict - 1, 1)):
        standing = threats.Chain(members=members, budget=budget, **SPACE).run(defence, X, Y)
        assert standing.passes.tolist() == [(1 + run) * verdict] * 2
        assert standing.passes.max() <= budget


class Scripted(Cut):
    """A random defence whose next labels are written down."""

    random = True

    def decide(self, x: Tensor) -> Label:
        return Label(torch.full((len(x),), self.script.pop()))


@pytest.mark.parametrize(("wrong", "fooled"), [(10, True), (6, True), (5, False), (0, False)])
def test_more_than_half_of_the_answers_must_be_wrong(wrong: int, fooled: bool) -> None:
    defence = Scripted(cut().model)
    defence.script = [0] * wrong + [1] * (10 - wrong)
    assert aimed_at(defence).judge(X, Y).fooled.tolist() == [fooled, fooled]  # the scores say otherwise: labels count


def test_rivals_that_were_not_reached_are_ranked_by_the_model() -> None:
    model, x = network(3, classes=6), inputs(3, 20, 4)
    robust = drq.DRQ(model, "linf", 0.0)  # nothing but the base label is reached
    y = model(x).argmax(1)
    assert torch.equal(aimed_at(robust).judge(x, y).rivals, model(x).argsort(dim=1, descending=True)[:, 1:])


def test_scores_that_attackers_read_are_never_pruned() -> None:
    model, x = network(1, classes=6), inputs(1, 30, 4)
    robust = drq.DRQ(model, "linf", 0.3, explore=SHORT, quantify=SHORT)
    assert robust.prune == "exact"
    exact = robust.variant(prune="none")(x)
    assert not torch.equal(robust(x), exact)
    torch.testing.assert_close(aimed_at(robust).scores()(x), exact, rtol=0, atol=1e-9)
    assert robust.shortened(3).prune == "none"


def test_the_red_team_hands_on_its_budget(caplog: pytest.LogCaptureFixture) -> None:
    robust, x = drq.DRQ(network(0, classes=60), "linf", 0.05), inputs(0, 1, 4)
    y = robust.model(x).argmax(1)
    with caplog.at_level(logging.WARNING, "drq"):
        standing = threats.RedTeam("linf", 0.001).run(robust, x, y)
    assert "FewerSteps is not run" in caplog.text
    assert standing.passes.max() <= 30_000


def test_a_point_that_fools_is_kept_though_another_has_a_smaller_lead() -> None:
    """Labels and scores of this defence disagree: it is fooled at 0.85 in the first feature alone."""

    class Odd(Cut):
        def decide(self, x: Tensor) -> Label:
            return Label(((x[:, 0] - 0.85).abs() > 0.01).long())

    members = (StaticPlant(by=-0.05, starts=[], **SPACE), StaticPlant(by=-0.3, starts=[], **SPACE))
    standing = threats.Chain(members=members, **SPACE).run(Odd(cut().model), X[1:], Y[1:])
    assert standing.fooled.all()
    assert standing.by.tolist() == [0]


def test_every_rank_has_its_own_rival() -> None:
    model, x = network(3, classes=6), inputs(3, 20, 4)
    robust = drq.DRQ(model, "linf", 0.1, explore=SHORT, quantify=SHORT)
    target, y = aimed_at(robust), model(x).argmax(1)
    standing = Standing.at(x, target.judge(x, y), ITSELF, 0, 1)
    for rank in range(4):
        contest = threats.Envelope("linf", 0.1, rank=rank).contest(target, y, standing)
        assert torch.equal(contest.given[1], standing.rivals[:, rank])


def test_fewer_steps_follows_the_shortened_defence() -> None:
    asked = []

    class Short(Cut):
        def shortened(self, steps: int) -> Cut:
            asked.append(steps)
            return self

    target = aimed_at(Short(cut().model))
    standing = Standing.at(X, target.judge(X, Y), ITSELF, 0, 1)
    threats.FewerSteps(steps=1, inner=4, **SPACE).pursue(target, Ball(X, 0.5, "linf", (0, 1)), Y, standing)
    assert asked == [4]


def test_findings_name_the_right_members_and_signs() -> None:
    team = threats.RedTeam("linf", 0.5)
    titles = ["the sample itself", *(member.title for member in team.members)]
    standing = threats.Chain(members=(Plant(by=0.0, starts=[], **SPACE),), **SPACE).run(cut(), X.repeat(2, 1), Y.repeat(2))
    four = replace(
        standing,
        tried=torch.ones(4, len(team.members), dtype=torch.bool),
        fooled=torch.tensor([True, True, True, False]),
        by=torch.tensor([ITSELF, 0, 3, 5]),
        static_by=torch.tensor([NONE, NONE, 2, NONE]),
        passes=torch.tensor([1.0, 2.0, 3.0, 6.0], dtype=torch.float64),
    )
    found = team.findings(four)
    assert found["defended"] == {"clean": 75.0, "worst_case": 25.0, "fell_to": {titles[0]: 1, titles[1]: 1, titles[4]: 1}}
    assert found["static"] == {"clean": 100.0, "worst_case": 75.0, "fell_to": {titles[3]: 1}}
    assert found["gain"] == -50
    assert found["passes"] == {"mean": 3.0, "most": 6.0, "limit": 30_000}


def test_a_rank_beyond_the_rivals_is_not_run() -> None:
    robust, x = drq.DRQ(network(0, classes=3), "linf", 0.1, explore=SHORT, quantify=SHORT), inputs(0, 4, 4)
    with pytest.raises(drq.InputError, match=r"^members must have one that can be run on this defence"):
        threats.Envelope("linf", 0.1, 3, rank=2)(robust, x, robust.model(x).argmax(1))


def test_leads_and_rivals_are_not_those_of_upper_bounds() -> None:
    """Exact pruning leaves losers with their explored confidence; the verdict must read as if nothing had been pruned."""
    model, x = network(1, classes=6), inputs(1, 300, 4)
    y, robust = model(x).argmax(1), drq.DRQ(model, "linf", 0.3, explore=SHORT, quantify=SHORT)
    ours, full = (aimed_at(each).judge(x, y) for each in (robust, robust.variant(prune="none")))
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

    target = aimed_at(Named(cut().model))
    with target.metered() as meter:
        target.defence(X)
    assert meter.rows == 2


def test_scores_whose_slope_is_zero_are_noticed() -> None:
    class Flat(Cut):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x.detach()) + 0 * x.sum()

    assert not aimed_at(Flat(cut().model)).has_slopes(X)
    assert aimed_at(cut()).has_slopes(X)


def test_points_that_fooled_a_random_defence_by_luck_are_given_up() -> None:
    """Wrong in the first ten answers about a new point, right ever after."""

    class Lucky(Cut):
        random = True
        asked = 0

        def decide(self, x: Tensor) -> Label:
            self.asked += 1
            return Label(torch.full((len(x),), int(not 10 < self.asked - self.before <= 20)))

    defence = Lucky(cut().model)
    defence.before = aimed_at(defence).draws  # the price of a verdict is taken first
    standing = Plant(by=-0.01, starts=[], **SPACE).run(defence, X, Y)
    assert standing.by.tolist() == [0, 0]  # it did fool
    assert not standing.fooled.any()


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

    target = aimed_at(Rounding(cut().model))
    assert target.has_slopes(X)
    assert threats.FewerSteps("linf", 0.5, 5).run(Rounding(cut().model), X, Y).fooled.all()
