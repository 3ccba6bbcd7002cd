"""Views of sound, tables and text are measured as the benchmark says."""

import pytest
import torch
from torch import nn

import drq
from tools.benchmarks import other_inputs, other_views


def test_counts_are_those_of_the_answers():
    y = torch.tensor([0, 1, 1, 0])
    labels = {"alone": [0, 0, 0, 1], "drq": [0, 1, 1, 1], "no gate": [1, 1, 1, 0], "mean": [0, 0, 1, 0]}
    found = other_views.counted({name: torch.tensor(each) for name, each in labels.items()}, y)
    assert found["right"] == {"alone": 1, "drq": 3, "no gate": 3, "mean": 3}
    assert found["against"]["drq against alone"] == [2, 0]
    assert found["against"]["no gate against alone"] == [3, 1]
    assert found["against"]["drq against mean"] == [1, 1]


def test_rules_answer_over_the_same_views():
    """A model of the sum: one view is sure of class 1, the input and the other are fairly sure of class 0."""
    logits = {1.0: [2.0, 0.0], 2.0: [0.0, 3.0], 4.0: [2.0, 0.0]}

    class Known(nn.Module):
        def forward(self, x):
            return torch.tensor([logits[float(each)] for each in x.sum(1)])

    views = other_inputs.own(twice=lambda x: 2 * x, four_times=lambda x: 4 * x)
    assert views.names == ("the input", "twice", "four times")
    robust = drq.DRQ(Known().eval(), views=views, bounds=None, gate=drq.views.Gate(2.0))
    found = other_views.answers(robust, torch.tensor([[0.5, 0.5]]))
    assert {name: label.item() for name, label in found.items()} == {"alone": 0, "drq": 0, "no gate": 1, "mean": 0}


def test_the_surest_gain_is_chosen():
    def row(shift, fixed, total):
        cell = {"inputs": total, "against": {"drq against alone": [fixed, 0]}}
        return {"kind": "text", "shift": shift, "choosing": {"shifted": cell}}

    rows = [row("few", 3, 10), row("many", 200, 1000), row("none", 0, 1000)]
    other_views.choose(rows)
    assert [each["chosen"] for each in rows] == [False, True, False]


def test_sentences_are_codes_of_characters_that_views_change_back():
    x, y = other_inputs.sentences(20, seed=1)
    assert x.shape == (20, other_inputs.LENGTH)
    assert len(y) == 20
    written = ["".join(map(chr, row)).rstrip() for row in other_inputs.codes(x).tolist()]
    assert all(each[0].isupper() and each[1:].islower() and each.endswith(".") for each in written)
    upper, lower = (other_inputs.letter_by_letter(each) for each in (str.upper, str.lower))
    assert torch.equal(lower(upper(x)), lower(x))
    assert not torch.equal(upper(x), x)
    small = other_inputs.codes(x) >= ord("a")
    changed = other_inputs.codes(other_inputs.typos(x)) != other_inputs.codes(x)
    assert not (changed & ~small).any()
    assert 0.25 < changed[small].double().mean() < 0.32  # one letter in 26 is replaced by itself
    assert (other_inputs.without(0)(x)[:, : other_inputs.LENGTH // 8] == ord(" ") / other_inputs.CODES).all()


def test_a_column_in_another_unit_comes_back():
    x = torch.rand(4, 30)
    there, back = other_inputs.scaled(0.1, [0, 10, 20]), other_inputs.scaled(10, [0, 10, 20])
    assert torch.equal((there(x) != x).any(0).nonzero()[:, 0], torch.tensor([0, 10, 20]))
    torch.testing.assert_close(back(there(x)), x)


@pytest.mark.parametrize("kind", [other_inputs.tumours, other_inputs.digits])
def test_tables_are_in_the_unit_cube_and_no_row_is_used_twice(kind):
    pytest.importorskip("sklearn")
    found = kind()
    assert 0 <= found.x.min() <= found.x.max() <= 1
    assert (found.model(found.x).argmax(1) == found.y).double().mean() > 0.9
    assert torch.cdist(found.x, found.clean).min() > 0
    row = other_views.measured(found, found.trials[0])
    assert row["passes"] == len(found.trials[0].views)
    assert row["gate"][0] <= other_views.CHANGES * row["gate"][1]
    assert row["choosing"]["clean"]["inputs"] + row["reported"]["clean"]["inputs"] == len(found.x)
