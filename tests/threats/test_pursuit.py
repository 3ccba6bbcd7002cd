"""Attacks on a defence, watched through a defence of one feature and members that do as they are told."""

import logging
from dataclasses import replace

import pytest
import torch
from testbed.classifiers import inputs, linear, network
from testbed.planted import SHORT, SPACE, Cut, Label, Plant, StaticPlant, X, Y, cut
from torch import Tensor

import drq
from drq import threats
from drq.norms import Ball
from drq.threats import Pursuit, Standing
from drq.threats.pursuit import ITSELF, NONE, as_target


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
    target, ball = as_target(defence), Ball(X, 0.5, "linf", (0, 1))
    standing = Standing.from_points(X - 0.05, target.judge(X - 0.05, Y), ITSELF, 0, 1)
    defence.register_forward_pre_hook(lambda _, given: seen.append(given[0].detach().clone()))
    member.pursue(target, ball, Y, standing)
    assert torch.equal(seen[0], X - 0.05)


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
    verdict = as_target(defence).verdict_cost(X)
    for budget, run in ((3 * verdict, 2), (3 * verdict - 1, 1)):
        standing = threats.Chain(members=members, budget=budget, **SPACE).run(defence, X, Y)
        assert standing.passes.tolist() == [(1 + run) * verdict] * 2
        assert standing.passes.max() <= budget


def test_the_red_team_hands_on_its_budget(caplog: pytest.LogCaptureFixture) -> None:
    """To follow searches as long as these twice costs more than sixty answers for three classes."""
    long = drq.Gradient(400)
    robust, x = drq.DRQ(network(0, classes=3), "linf", 0.05, explore=long, quantify=long), inputs(0, 1, 4)
    y = robust.model(x).argmax(1)
    with caplog.at_level(logging.WARNING, "drq"):
        standing = threats.RedTeam("linf", 0.001).run(robust, x, y)
    assert "Envelope(rival 1, 75 steps, restart 1) is not run" in caplog.text
    assert "FewerSteps is not run" not in caplog.text
    assert standing.passes.max() <= 60 * as_target(robust).verdict_cost(x)


def test_whoever_falls_by_a_hair_is_driven_further() -> None:
    """At 0.499 the defence is wrong by 0.01, which another rounding may undo; who came first keeps the success."""
    hair, more, rest = (Plant(by=by, starts=[], **SPACE) for by in (-0.051, -0.1, -0.2))
    standing = run(hair, more, rest)
    assert standing.fooled.tolist() == [True, False]
    assert standing.by.tolist() == [0, 2]
    assert standing.x[:, 0].tolist() == pytest.approx([0.45, 0.7])
    assert standing.tried.tolist() == [[True, True, False], [True, True, True]]
    assert standing.clearly_fooled.tolist() == [True, False]


def test_who_is_most_dangerous_is_read_off_at_the_best_point() -> None:
    first, second = torch.tensor([[1, 2]]), torch.tensor([[2, 1]])
    old = Standing.from_points(X[:1], as_target(cut()).judge(X[:1], Y[:1]), ITSELF, 0, 1)
    old, nearer = replace(old, rivals=first), replace(old, rivals=second, lead=old.lead - 1)
    assert torch.equal(old.updated(nearer).rivals, second)
    assert torch.equal(nearer.updated(old).rivals, second)


def test_restarts_leave_the_best_point() -> None:
    target, ball = as_target(cut()), Ball(X, 0.5, "linf", (0, 1))
    standing = Standing.from_points(X - 0.05, target.judge(X - 0.05, Y), ITSELF, 0, 1)
    starts = []
    for restart in (0, 1, 2, 1):
        seen = []
        handle = target.defence.register_forward_pre_hook(lambda _, given, seen=seen: seen.append(given[0].detach().clone()))
        threats.Envelope(steps=1, restart=restart, **SPACE).pursue(target, ball, Y, standing)
        handle.remove()
        starts.append(seen[0])
    assert torch.equal(starts[0], standing.x)
    assert torch.equal(starts[1], starts[3])
    assert not torch.equal(starts[1], starts[2])
    assert all(ball.contains(start).all() for start in starts)


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
    target, y = as_target(robust), model(x).argmax(1)
    standing = Standing.from_points(x, target.judge(x, y), ITSELF, 0, 1)
    for rank in range(4):
        contest = threats.Envelope("linf", 0.1, rank=rank).contest(target, y, standing)
        assert torch.equal(contest.given[1], standing.rivals[:, rank])


def _duelled() -> tuple[drq.DRQ, Tensor, Tensor, Standing, Ball]:
    """A DRQ among six classes before any attack."""
    model, x = network(3, classes=6), inputs(3, 20, 4)
    robust, y = drq.DRQ(model, "linf", 0.1, explore=SHORT, quantify=SHORT), model(x).argmax(1)
    return robust, x, y, Standing.from_points(x, as_target(robust).judge(x, y), ITSELF, 0, 1), Ball(x, 0.1, "linf")


def test_rivals_keeps_the_best_of_all_that_it_follows() -> None:
    robust, x, y, standing, ball = _duelled()
    target, space = as_target(robust), {"norm": "linf", "radius": 0.1}
    with torch.no_grad():
        found = threats.Rivals(steps=6, rank=1, most=3, **space).best_point(target, ball, y, standing)
        each = [threats.Envelope(steps=6, rank=rank, **space).best_point(target, ball, y, standing) for rank in (1, 2, 3)]
        values = torch.stack([one.value for one in each])
        assert torch.equal(found.value, values.amin(0))
        assert len(set(values.argmin(0).tolist())) > 1  # no rival is the best of all samples
        for row, number in enumerate(values.argmin(0).tolist()):
            assert torch.equal(found.point[row], each[number].point[row])
        most = threats.Rivals(steps=2, rank=2, most=50, **space).best_point(target, ball, y, standing)  # there are three
        assert most.point.shape == x.shape


def test_sampling_asks_for_two_classes_and_needs_no_slope() -> None:
    robust, x, y, standing, ball = _duelled()
    target, member = as_target(robust), threats.Sampling("linf", 0.1, 30)
    with torch.no_grad(), target.counting_rows() as meter:
        found = member.best_point(target, ball, y, standing)
    assert meter.rows <= len(x) * member.cost(target, x) < len(x) * threats.ScoreBased("linf", 0.1, 30).cost(target, x) / 2
    with torch.no_grad():
        before = target.contest(y, standing.rivals[:, 0], standing.radius)(x).value
        assert torch.equal(target.contest(y, standing.rivals[:, 0], standing.radius)(found.point).value, found.value)
    assert (found.value <= before).all()
    assert (found.value < before - 0.01).sum() > 10

    class Hard(Cut):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x).detach()

    chain = threats.Chain(members=(threats.Envelope(steps=2, **SPACE), threats.Sampling(steps=40, **SPACE)), **SPACE)
    standing = chain.run(Hard(cut().model), X, Y)
    assert standing.tried.any(0).tolist() == [False, True]


def test_pruned_classes_are_no_rivals_before_those_that_were_quantified() -> None:
    """What pruning leaves of them is a bound that says little: the model in DRQ ranks them."""
    model, x = network(3, classes=6), inputs(3, 60, 4)
    robust = drq.DRQ(model, "linf", 0.4, explore=SHORT, quantify=SHORT)
    decision, y = robust.decide(x), model(x).argmax(1)
    rivals = as_target(robust).judge(x, y).rivals
    assert (rivals != y[:, None]).all()
    known = (decision.exact & decision.reached).gather(1, rivals)
    assert (known.long().diff(dim=1) <= 0).all()  # first those
    assert (~decision.exact).any(1).sum() > 10
    for column, among in ((decision.log_odds, known), (model(x), ~known)):
        score = column.gather(1, rivals)
        both = among[:, 1:] & among[:, :-1]
        assert (score.diff(dim=1)[both] <= 0).all()
        assert both.any()


def test_fewer_steps_follows_the_shortened_defence() -> None:
    asked = []

    class Short(Cut):
        def shortened(self, steps: int) -> Cut:
            asked.append(steps)
            return self

    target = as_target(Short(cut().model))
    standing = Standing.from_points(X, target.judge(X, Y), ITSELF, 0, 1)
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
    assert found["passes"] == {"mean": 3.0, "most": 6.0, "limit": 32_000}


def test_a_rank_beyond_the_rivals_is_not_run() -> None:
    robust, x = drq.DRQ(network(0, classes=3), "linf", 0.1, explore=SHORT, quantify=SHORT), inputs(0, 4, 4)
    with pytest.raises(drq.InputError, match=r"^members must have one that can be run on this defence"):
        threats.Envelope("linf", 0.1, 3, rank=2)(robust, x, robust.model(x).argmax(1))


def test_points_that_fooled_a_random_defence_by_luck_are_given_up() -> None:
    """Wrong in the first ten answers about a new point, right ever after."""

    class Lucky(Cut):
        random = True
        asked = 0

        def decide(self, x: Tensor) -> Label:
            self.asked += 1
            return Label(torch.full((len(x),), int(not 10 < self.asked - self.before <= 20)))

    defence = Lucky(cut().model)
    defence.before = as_target(defence).draws  # the price of a verdict is taken first
    standing = Plant(by=-0.01, starts=[], **SPACE).run(defence, X, Y)
    assert standing.by.tolist() == [0, 0]  # it did fool
    assert not standing.fooled.any()
