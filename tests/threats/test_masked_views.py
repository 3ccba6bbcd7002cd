"""Models whose slopes lead astray at the view that counts: the red team finds the point that fools DRQ all the same."""

import pytest
import torch
from testbed.digits import Digits
from testbed.refusals import refused
from torch import Tensor, nn

import drq
from drq.threats import AllViews, Chain, Envelope, FewerSteps, RedTeam, SingleViews, ViewSampling
from drq.threats.pursuit import as_target, plan
from drq.threats.views_target import nearest_lead
from drq.views import Contrast, Denoise, Gate, Mirror, Rotation, Views

SIZE, SPACE = 8, {"norm": "linf"}


class Toy(nn.Module):
    """Two classes: ``lead`` says how far the first is ahead."""

    def forward(self, x: Tensor) -> Tensor:
        lead = self.lead(x)
        return torch.stack([lead / 2, -lead / 2], 1)

    def lead(self, x: Tensor) -> Tensor:
        raise NotImplementedError


class Turned(Toy):
    """A bright corner tells how the picture is turned. Only upside down has slopes, where neither class has its best view."""

    heights = (6.0, 5.0, -0.5, 6.0)  # upright, upside down, and both quarter turns

    def lead(self, x: Tensor) -> Tensor:
        corners = torch.stack([x[:, 0, 0, 0], x[:, 0, -1, -1], x[:, 0, 0, -1], x[:, 0, -1, 0]], 1)
        flat = torch.tensor(self.heights)[corners.argmax(1)]
        sloped = self.heights[1] - 300 * (x[:, 0, 2:6, 2:6].mean((1, 2)) - 0.5)
        return torch.where(corners.argmax(1) == 1, sloped, flat)


class AlmostWrong(Turned):
    """The model is nearly wrong at the input itself, without a slope: that is the nearer way, and it leads nowhere."""

    heights = (0.3, 5.0, 1.0, 1.0)


class Hidden(Toy):
    """A pattern that has to be strong: in a grey picture, only stretching can make it so."""

    def lead(self, x: Tensor) -> Tensor:
        columns = torch.arange(SIZE) % 2 * 2 - 1
        return 2 - 20 * (x[:, 0] * columns).mean((1, 2))


class Noisy(Toy):
    """Sure of a noisy picture, and brightness counts in a smooth one alone, so that slopes go through medians."""

    def lead(self, x: Tensor) -> Tensor:
        noise = x.flatten(1).std(1).detach()
        return torch.where(noise > 0.1, 3, 4 - 100 * (x.mean((1, 2, 3)) - 0.5))


class Cut(Toy):
    """Brightness counts where the corner is dark, as at the view below, which is cut at 1 where the picture is bright."""

    def lead(self, x: Tensor) -> Tensor:
        return torch.where(x[:, 0, 0, 0] < 0.1, 3 - 60 * (1 - x[:, 0, 1:].mean((1, 2))), 3)


def harder(x: Tensor) -> Tensor:
    """A view that leaves the bounds of inputs."""
    return 3 * x - 1


def marked(brightness: float) -> Tensor:
    x = torch.full((4, 1, SIZE, SIZE), brightness)
    x[:, 0, 0, 0] = 1
    return x


def drawn() -> Tensor:
    """Grey, with some bright pixels that a median takes out."""
    return 0.5 + 0.45 * (torch.rand((4, 1, 16, 16), generator=torch.Generator().manual_seed(0)) < 0.12)


def dark_corner() -> Tensor:
    x = torch.full((4, 1, SIZE, SIZE), 0.9)
    x[:, 0, 0, 0] = 0.3
    return x


TURNS = Rotation(180, 4)
TOYS: dict[str, tuple[Toy, Views, Gate | None, Tensor, float]] = {
    "other views": (Turned(), TURNS, None, marked(0.5), 0.1),
    "other views behind a gate": (Turned(), TURNS, Gate(1.0), marked(0.5), 0.1),
    "the farther way": (AlmostWrong(), TURNS, Gate(6.0), marked(0.5), 0.1),
    "stretched": (Hidden(), Contrast(), None, torch.full((4, 1, SIZE, SIZE), 0.5), 0.02),
    "medians": (Noisy(), Denoise(), None, drawn(), 0.1),
    "cut at the bounds": (Cut(), drq.views.as_views(harder), None, dark_corner(), 0.3),
}


def defended(name: str) -> tuple[drq.DRQ, Tensor, Tensor, float]:
    model, views, gate, x, radius = TOYS[name]
    return drq.DRQ(model.eval(), views=views, gate=gate), x, torch.zeros(len(x)).long(), radius


def known(name: str, x: Tensor, radius: float) -> Tensor:
    """The point that fools DRQ."""
    if name == "stretched":
        return x + radius * (torch.arange(SIZE) % 2 * 2 - 1)
    moved = (x - radius if name == "cut at the bounds" else x + radius).clamp(0, 1)
    if "view" in name or "way" in name:
        moved[:, 0, 0, 0] = 1
    return moved


@pytest.mark.parametrize("name", TOYS)
def test_the_red_team_finds_the_known_point(name: str) -> None:
    robust, x, y, radius = defended(name)
    assert (robust.decide(x).label == y).all()
    assert (robust.decide(known(name, x, radius)).label != y).all()
    standing = RedTeam("linf", radius).run(robust, x, y)
    assert standing.fooled.all()
    assert (standing.x - x).abs().max() <= radius + 1e-6
    assert standing.passes.max() < 32_000


@pytest.mark.parametrize("name", ["other views", "other views behind a gate", "the farther way"])
def test_the_slopes_of_the_best_view_alone_do_not(name: str) -> None:
    """So that the attack through all views is there for a reason."""
    robust, x, y, radius = defended(name)
    space = SPACE | {"radius": radius}
    found = {
        kind: Chain(members=(kind(**space),), **space).run(robust, x, y).fooled for kind in (Envelope, AllViews, SingleViews)
    }
    assert not found[Envelope].any()
    assert found[AllViews].all()
    assert found[SingleViews].all()


@pytest.mark.parametrize("threshold", [0.02, 0.3, 5.0])
def test_a_gated_ball_is_followed_with_its_gate_open(threshold: float, digits: Digits) -> None:
    """Else answers that it keeps would hide what the searches find; it is judged as it is."""
    x, y, space = digits.x[:12], digits.y[:12], {"norm": "linf", "radius": 0.2}
    few = {"explore": drq.Gradient(3), "quantify": drq.Gradient(3)}
    robust = drq.DRQ(digits.model, "linf", 0.2, **few, views=None)
    held = robust.variant(gate=Gate(threshold))
    assert held.decide(x).kept.any()
    rival, radius = (y + 1) % 10, torch.full((12,), 0.2)
    free, behind = (as_target(each) for each in (robust, held))
    assert torch.equal(free.contest(y, rival, radius)(x).value, behind.contest(y, rival, radius)(x).value)
    assert torch.equal(free.scores(2)(x), behind.scores(2)(x))
    members = (Envelope(steps=15, **space), FewerSteps(steps=8, inner=2, **space))
    found = Chain(members=members, **space).run(held, x, y)
    assert torch.equal(found.fooled, held.decide(found.x).label != y)
    assert found.fooled.sum() >= 3 or threshold > 1  # which keeps everything: these members do not attack the model in it


def test_settings_of_the_defence_are_heeded() -> None:
    """Neighbouring views, and views that are left out where the own answer is ahead: the lead between two classes tells."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.Tanh(), nn.Linear(16, 2)).double().eval()
    x = torch.rand(300, 1, 8, 8, dtype=torch.float64)
    with torch.no_grad():
        model[-1].bias -= model(x).mean(0)  # both classes have their share
    ahead = Gate(0.05, ahead=0.1)
    for settings in ({"alpha": 0.5}, {"alpha": 0.5, "gate": Gate(0.05)}, {"gate": ahead, "prune": "race"}, {"gate": ahead}):
        robust = drq.DRQ(model, views=Rotation(90, 9), **settings)
        label = robust.decide(x).label
        assert (label != robust.variant(alpha=0.0, gate=None, prune="exact").decide(x).label).any()
        for y in (torch.zeros(300).long(), torch.ones(300).long()):
            assert torch.equal(nearest_lead(robust, model, x, y, 1 - y) > 0, label == y)


def test_views_without_finite_scores_are_left_out() -> None:
    class Broken(Toy):
        def forward(self, x: Tensor) -> Tensor:
            return torch.cat([super().forward(x), torch.full_like(x[:, 0, 0, :1], -50.0)], 1)

        def lead(self, x: Tensor) -> Tensor:
            lead = 1 + 20 * (x[:, 0, 0, 0] - x[:, 0, 0, -1])
            return lead + torch.where(x[:, 0, 0, -1] < 0.01, torch.nan, 0.0)

    x, y = torch.full((3, 1, 4, 4), 0.5), torch.zeros(3).long()
    x[1, 0, 0, 0] = 0  # then the mirror image is not seen
    robust = drq.DRQ(Broken().eval(), views=Mirror())
    decision = robust.decide(x)
    assert decision.nonfinite.tolist() == [0, 1, 0]
    point = x.clone().requires_grad_()
    lead = nearest_lead(robust, robust.model, point, y, 1 - y)
    assert torch.equal(lead > 0, decision.label == y)
    (slope,) = torch.autograd.grad(lead.sum(), point)
    assert slope.isfinite().all()


@pytest.mark.parametrize("count", [13, 33])
def test_the_whole_team_fits_for_ten_classes(count: int) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10)).eval()
    target, x = as_target(drq.DRQ(model, views=Rotation(90, count))), torch.rand(1, 1, 8, 8)
    team = RedTeam("linf", 0.1)
    verdict = target.verdict_cost(x)
    costs = [member.cost(target, x) + verdict for member in team.members]
    assert 7_000 < verdict + sum(costs) <= 32_000
    target.judge(x, torch.zeros(1).long())  # the first look at a model is one more
    with target.counting_rows() as meter:
        target.judge(x, torch.zeros(1).long())
        assert meter.rows <= verdict
    robust, y = target.defence, model(x).argmax(1)
    for member, cost in zip(team.members, costs, strict=True):
        assert member.run(robust, x, y).passes.max() <= cost + 2 * verdict, member.title


def test_many_views_leave_room_for_queries_and_slopes(caplog: pytest.LogCaptureFixture) -> None:
    model, x = nn.Sequential(nn.Flatten(), nn.Linear(64, 10)).eval(), torch.rand(1, 1, 8, 8)
    team, target = RedTeam("linf", 0.1), as_target(drq.DRQ(model, views=Rotation(90, 151)))
    titles = {type(team.members[number]).__name__ for number in plan(team.members, target, x, 10, team.budget)}
    assert {"Transfer", "SingleViews", "ViewSampling", "FewerSteps"} <= titles
    assert "is not run: it may take" in caplog.text


def test_members_for_views_say_so_where_there_are_none() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 3)).eval()
    refused(AllViews("linf", 0.1), model, torch.rand(2, 1, 8, 8), torch.zeros(2).long(), words=["members must have one"])


def test_queries_find_what_has_no_slopes() -> None:
    class Steps(Toy):
        def lead(self, x: Tensor) -> Tensor:
            bright = (x[:, 0, :, :4].mean((1, 2)) * 20).round() / 20 - (x[:, 0, :, 4:].mean((1, 2)) * 20).round() / 20
            return 1 + 30 * bright

    x, y, space = torch.full((4, 1, SIZE, SIZE), 0.5), torch.zeros(4).long(), {"norm": "linf", "radius": 0.2}
    robust = drq.DRQ(Steps().eval(), views=Contrast())
    assert Chain(members=(ViewSampling(**space),), **space).run(robust, x, y).fooled.all()
    assert RedTeam(**space).run(robust, x, y).fooled.all()
