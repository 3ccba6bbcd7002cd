"""The red team is real: it breaks what is known to break, follows what it says it follows, and spends what it says it spends."""

import logging
from typing import NamedTuple

import pytest
import torch
from testbed.classifiers import inputs, network
from testbed.digits import Digits
from torch import Tensor, nn

import drq
from drq import threats
from drq.defences import AntiAdversary
from drq.method.adapters import Wrapper
from drq.system.progress import Bar
from drq.threats.pursuit import ITSELF, NONE, as_target

SHORT = drq.Gradient(steps=5)
RADIUS = 0.15
SPACE = {"norm": "linf", "radius": 0.1}


def right(model: nn.Module, x: Tensor, y: Tensor) -> float:
    return 100 * (model(x).argmax(1) == y).double().mean().item()


def chain(**space: object) -> threats.Chain:
    """The standard chain, shortened."""
    carried = [threats.APGD(steps=40, **space), threats.APGDTargeted(steps=40, targets=3, **space)]
    members = [threats.Transfer(attack=attack, **space) for attack in carried]
    members += [threats.Envelope(steps=30, inner=(5,), rank=rank, **space) for rank in range(2)]
    return threats.Chain(members=tuple(members), **space)


def test_the_gain_of_anti_adversary_is_only_apparent(digits: Digits) -> None:
    """Attacked hastily it gains; transferred points bring it back to the model in it."""
    x, y = digits.x[:100], digits.y[:100]
    defence = AntiAdversary().around(digits.model)
    static = right(digits.model, threats.APGD("linf", RADIUS)(digits.model, x, y), y)
    hasty = right(defence, threats.APGD("linf", RADIUS)(defence, x, y), y)
    standing = chain(norm="linf", radius=RADIUS).run(defence, x, y)
    worst = 100 - 100 * standing.fooled.double().mean().item()
    static_worst = 100 - 100 * standing.static_fooled.double().mean().item()
    print(f"static {static}, hasty {hasty}, red team {worst}, static worst case {static_worst}")
    assert hasty >= static + 5
    assert worst <= static_worst + 1.5
    assert static_worst <= static


def test_against_drq_every_point_is_judged_by_drq_itself(digits: Digits) -> None:
    x, y = digits.x[:24], digits.y[:24]
    robust = drq.DRQ(digits.model, "linf", 2 * RADIUS, explore=SHORT, quantify=SHORT)
    transferred = threats.Transfer("linf", RADIUS, threats.APGD("linf", RADIUS, 40)).run(robust, x, y)
    standing = chain(norm="linf", radius=RADIUS).run(robust, x, y)
    assert torch.equal(standing.fooled, robust.decide(standing.x).label != y)
    assert drq.Ball(x, RADIUS, "linf", (0, 1)).contains(standing.x).all()
    assert (standing.fooled >= transferred.fooled).all()
    assert standing.fooled.sum() > transferred.fooled.sum()  # following DRQ finds more than what fools the model in it


class Verdict(NamedTuple):
    label: Tensor


class Coin(Wrapper):
    """A defence that adds noise, another each time."""

    random = True

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x + 0.1 * torch.randn(x.shape, generator=self.generator).to(x))

    def decide(self, x: Tensor) -> Verdict:
        return Verdict(self(x).argmax(1))

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        self.generator = torch.Generator().manual_seed(0)


def test_random_defences_are_averaged_and_judged_by_the_majority(digits: Digits) -> None:
    x, y = digits.x[:30], digits.y[:30]
    defence = Coin(digits.model)
    target = as_target(defence)
    assert target.draws == 10
    with target.counting_rows() as meter:
        target.scores()(x[:1])
    assert meter.rows == 10
    standing = chain(norm="linf", radius=RADIUS).run(defence, x, y)
    again = torch.stack([defence.decide(standing.x).label != y for _ in range(25)]).double().mean(0)
    assert standing.fooled.double().mean() > 0.3
    assert again[standing.fooled].mean() > 0.7


def test_randomness_is_noticed_where_nobody_says_so(digits: Digits, caplog: pytest.LogCaptureFixture) -> None:
    x = digits.x[:4]
    coin = Coin(digits.model)
    coin.random = False
    for defence, draws in ((coin, 10), (AntiAdversary().around(digits.model), 1), (digits.model, 1)):
        target = as_target(defence)
        with caplog.at_level(logging.WARNING, "drq"):
            target.detect_randomness(x)
        assert target.draws == draws
    assert caplog.text.count("answers differently each time") == 1


def test_memory_is_bounded_by_chunk(digits: Digits) -> None:
    """No batch of the model has more rows, whatever the member, where the defence has the same bound."""
    x, y = digits.x[:4], digits.y[:4]
    robust = drq.DRQ(digits.model, "linf", 0.05, explore=drq.Gradient(2), quantify=drq.Gradient(2), chunk=6)
    rows: list[int] = []
    handle = digits.model.register_forward_hook(lambda _module, given, _output: rows.append(len(given[0])))
    space = {"norm": "linf", "radius": 0.05, "chunk": 6}
    members = (
        threats.Transfer(attack=threats.APGD(steps=3, **space), **space),
        threats.Envelope(steps=2, **space),
        threats.FewerSteps(steps=2, **space),
        threats.ScoreBased(queries=2, **space),
        threats.DecisionBased(queries=2, **space),
    )
    try:
        threats.Chain(members=members, **space).run(robust, x, y)
    finally:
        handle.remove()
    assert max(rows) <= 6


class Detached(Wrapper):
    """A defence that can be asked and not followed."""

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x).detach().round()

    def decide(self, x: Tensor) -> Verdict:
        return Verdict(self(x).argmax(1))


def test_a_defence_without_gradients_is_attacked_all_the_same(digits: Digits, caplog: pytest.LogCaptureFixture) -> None:
    x, y = digits.x[:20], digits.y[:20]
    defence = Detached(digits.model)
    with caplog.at_level(logging.WARNING, "drq"):
        standing = chain(norm="linf", radius=RADIUS).run(defence, x, y)
    assert caplog.text.count("is not run: the scores of the defence have no gradient") == 2  # both envelopes
    assert torch.equal(standing.fooled, defence.decide(standing.x).label != y)
    assert standing.fooled.double().mean() > 0.3
    with pytest.raises(drq.InputError, match=r"^members must have one that can be run on this defence, got Envelope"):
        threats.Envelope("linf", RADIUS).run(defence, x, y)


def test_what_cannot_be_a_target_is_told_so(digits: Digits) -> None:
    x, y = digits.x[:3], digits.y[:3]
    one_each = drq.DRQ(digits.model, "linf", torch.full((3,), 0.1))
    with pytest.raises(drq.InputError, match=r"^model\.radius must not be one number for each sample, got a tensor: "):
        threats.RedTeam("linf", 0.1).run(one_each, x, y)
    with pytest.raises(drq.InputError, match=r"^model\.model must be a torch\.nn\.Module, got function: "):
        threats.RedTeam("linf", 0.1).run(drq.DRQ(lambda x: digits.model(x), "linf", 0.1), x, y)
    with pytest.raises(drq.InputError, match=r"^model must be a torch\.nn\.Module, got function: "):
        threats.RedTeam("linf", 0.1).run(lambda x: digits.model(x), x, y)


def test_a_plain_model_is_its_own_defence(digits: Digits) -> None:
    x, y = digits.x[:20], digits.y[:20]
    standing = threats.Transfer("linf", RADIUS, threats.APGD("linf", RADIUS, 30)).run(digits.model, x, y)
    assert torch.equal(standing.fooled, digits.model(standing.x).argmax(1) != y)
    assert torch.equal(standing.fooled, standing.static_fooled)


class TestBudget:
    @pytest.mark.parametrize("strength", ["quick", "full"])
    def test_the_whole_team_fits_for_ten_classes(self, strength: str) -> None:
        """DRQ as the paper has it: every member is run, and their most passes are within the limit."""
        model = nn.Sequential(nn.Flatten(), network(0, 12, 10)).eval()
        robust, x = drq.DRQ(model, "linf", 0.2), inputs(0, 1, 3, 2, 2)
        team, target = threats.RedTeam(strength=strength, **SPACE), as_target(robust)
        verdict = target.verdict_cost(x)
        most = verdict + sum(member.cost(target, x) + verdict for member in team.members if not member.for_views)
        print(strength, most)
        assert most <= {"quick": 32_000, "full": 150_000}[strength]
        assert most >= {"quick": 20_000, "full": 100_000}[strength]

    def test_costs_are_upper_bounds_of_what_is_counted(self) -> None:
        model, x = network(2, classes=5), inputs(2, 6, 4)
        y = model(x).argmax(1)
        robust = drq.DRQ(model, "linf", 0.05, explore=SHORT, quantify=SHORT)  # too small to fool: everybody is kept busy
        for member in (
            threats.Transfer(attack=threats.PGDNoise(steps=3, **SPACE), **SPACE),
            threats.Envelope(steps=5, **SPACE),
            threats.FewerSteps(steps=5, **SPACE),
            threats.ScoreBased(queries=5, **SPACE),
            threats.DecisionBased(queries=5, **SPACE),
        ):
            target = as_target(robust)
            most = target.verdict_cost(x) * 2 + member.cost(target, x) + 1  # one row of every batch is examined
            assert member.run(robust, x, y).passes.max() <= most, member

    def test_members_that_do_not_fit_are_left_out_and_named(self, caplog: pytest.LogCaptureFixture) -> None:
        model, x = network(2, classes=5), inputs(2, 6, 4)
        y, robust = model(x).argmax(1), drq.DRQ(model, "linf", 0.05)
        members = (threats.Envelope(steps=100, inner=(7,), **SPACE), threats.Envelope(steps=2, **SPACE))
        with caplog.at_level(logging.WARNING, "drq"):
            standing = threats.Chain(members=members, budget=1500, **SPACE).run(robust, x, y)
        assert standing.passes.max() <= 1500
        reason = "Envelope(rival 1, 100 steps through 7) is not run: it may take 3647 passes an image where 1287 are left"
        assert reason in caplog.text
        with pytest.raises(drq.InputError, match=r"^members must have one that can be run on this defence, got Envelope"):
            threats.Chain(members=members[:1], budget=1500, **SPACE).run(robust, x, y)

    def test_costly_members_run_on_the_first_samples_of_a_dataset_only(self) -> None:
        model, x = network(2, classes=5), inputs(2, 4, 4)
        y, robust = model(x).argmax(1), drq.DRQ(model, "linf", 0.05, explore=SHORT, quantify=SHORT)
        member = threats.ScoreBased(queries=10, **SPACE)
        standing = threats.Chain(members=(member,), **SPACE).run(robust, x, y, index=torch.tensor([49, 50, 3, 700]))
        few = torch.tensor([True, False, True, False])
        assert (standing.passes[few] > 300).all()
        assert (standing.passes[~few] < 100).all()


def test_what_is_wrong_before_any_attack_is_not_counted_as_fallen_to_one() -> None:
    """DRQ may be wrong at a sample where the model in it is right: the transfers still attack that model there."""
    model, x = network(6, gain=6.0), inputs(6, 60, 4)
    robust = drq.DRQ(model, "linf", 0.4, explore=SHORT, quantify=SHORT)
    y = model(x).argmax(1)
    wrong = robust.decide(x).label != y
    assert 5 <= wrong.sum() <= 55
    chain = threats.Chain("linf", 0.2, (threats.Transfer("linf", 0.2, threats.APGD("linf", 0.2, 20)),))
    standing = chain.run(robust, x, y)
    assert (standing.lead <= as_target(robust).judge(x, y).lead)[wrong].all()  # points only get worse
    assert (standing.by[wrong] == ITSELF).all()
    assert standing.fooled[wrong].all()
    assert (standing.by[standing.fooled & ~wrong] == 0).all()
    assert (standing.static_by >= 0).sum() > (standing.static_by[~wrong] >= 0).sum()
    assert chain.findings(standing)["defended"]["clean"] == pytest.approx(100 * (~wrong).double().mean())


def test_findings_add_up(digits: Digits) -> None:
    x, y = digits.x[:12], digits.y[:12]
    transfer = threats.Transfer("linf", RADIUS, threats.APGD("linf", RADIUS, 40))
    team = threats.Chain("linf", RADIUS, (transfer, threats.Envelope("linf", RADIUS, 10**6)), budget=10**4)
    standing = team.run(digits.model, x, y)
    found = team.findings(standing)
    assert found["defended"]["worst_case"] == pytest.approx(100 - 100 * standing.fooled.double().mean().item())
    assert found["defended"]["clean"] == pytest.approx(right(digits.model, x, y))
    assert sum(found["defended"]["fell_to"].values()) == standing.fooled.sum()
    assert found["gain"] == 0
    assert ((standing.by >= ITSELF) & (standing.static_by >= NONE)).all()
    assert found["tried"][transfer.title] == (digits.model(x).argmax(1) == y).sum()
    assert "  not run, or nobody was left to run on: Envelope(rival 1, 1000000 steps" in team.summary(standing)
    full = threats.RedTeam("linf", RADIUS, "full")
    assert len({member.title for member in full.members}) == len(full.members)
    with pytest.raises(drq.InputError, match=r"^standing must be what run\(\) of this team returned"):
        full.findings(standing)
    text = team.summary(standing)
    assert "worst case, defended minus static: +0.0 points" in text
    assert f"{found['defended']['worst_case']:.1f}" in text


def test_progress_tells_the_share_and_the_time_left(capsys: pytest.CaptureFixture[str]) -> None:
    model, x = network(2), inputs(2, 6, 4)
    told: list[tuple[float, str]] = []
    member = threats.Envelope("linf", 0.1, 2)
    threats.Chain("linf", 0.1, (member, member), chunk=4, tell=lambda *each: told.append(each)).run(model, x, model(x).argmax(1))
    shares = [share for share, _ in told]
    assert shares == sorted(shares)
    assert shares[0] == 0
    assert shares[-1] == 1
    assert sum(what == member.title for _, what in told) == 6  # two members on three pieces of two samples
    bar = Bar("work", seconds=0)
    bar.began -= 30
    bar(0.25, "step")
    assert capsys.readouterr().err == "work  25 %, 1:30 left  step\n"


@pytest.mark.slow
def test_the_standard_team_keeps_its_word_on_digits(digits: Digits) -> None:
    x, y = digits.x[:16], digits.y[:16]
    robust = drq.DRQ(digits.model, "linf", 2 * RADIUS)
    standing = threats.RedTeam("linf", RADIUS).run(robust, x, y)
    print(threats.RedTeam("linf", RADIUS).summary(standing))
    assert standing.passes.max() <= 32_000
    assert torch.equal(standing.fooled, robust.decide(standing.x).label != y)
    assert standing.fooled.sum() >= standing.static_fooled.sum() - 1


def test_a_dear_defence_does_not_get_away_with_fewer_attacks(digits: Digits, caplog: pytest.LogCaptureFixture) -> None:
    """Exploration with noise costs ten times as much: attackers average over fewer points, and have a larger budget."""
    noisy = drq.Gradient(20, smooth=drq.Noise(10))
    assert noisy.shortened(5) == drq.Gradient(5, smooth=drq.Noise(2))
    robust = drq.DRQ(digits.model, "linf", 0.3, explore=noisy)
    with caplog.at_level(logging.WARNING, logger="drq"):
        standing = threats.RedTeam("linf", 0.15).run(robust, digits.x[:1], digits.y[:1])
    assert "is not run" not in caplog.text
    assert standing.passes.max() <= 60 * (2 + robust.most_passes(10))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # what torch.compile imports
def test_a_compiled_drq_falls_to_the_same_attacks_at_the_same_count(digits: Digits) -> None:
    """Passes of what is compiled do not go through the model, on which a meter has its hook."""
    x, y = digits.x[:16], digits.y[:16]
    space = ("linf", 0.15)
    members = (threats.Transfer(*space, threats.APGD(*space, 5)), threats.Envelope(*space, 4))
    team = threats.Chain(*space, members)
    robust = [drq.DRQ(digits.model, "linf", 0.3, compile=each) for each in (False, True)]
    plain, compiled = (team.run(each, x, y) for each in robust)
    assert torch.equal(plain.fooled, compiled.fooled)
    torch.testing.assert_close(plain.lead, compiled.lead, rtol=0, atol=1e-3)
    torch.testing.assert_close(plain.passes, compiled.passes, rtol=0, atol=1)
    target = as_target(robust[1].variant(precision="bfloat16"))
    target.detect_randomness(x)
    with target.counting_rows() as meter:
        target.answer(x)
    assert meter.rows == target.defence.decide(x).passes.sum()  # near ties, which hooks see, count once
    attacks = [threats.ScoreBased(*space, queries=3), threats.EndToEnd(*space, steps=2, inner=2), threats.FewerSteps(*space, 3)]
    for attack in attacks:
        fresh = (each.variant(prune="none") for each in robust)
        plain, compiled = (attack.run(each, x[:4], y[:4]) for each in fresh)
        torch.testing.assert_close(plain.passes, compiled.passes, rtol=0, atol=2)
