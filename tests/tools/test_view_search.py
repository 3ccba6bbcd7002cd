"""Rules of the search for the best form: DRQ's is what the package does, and answers are kept as they were heard."""

import pytest
import torch
from testbed.every_view import batch, flat

import drq
from drq.views import Mirror, Rotation
from drq.views.contest import table
from tools.view_search import record, rules

VIEWS = Rotation(90, 5) + Mirror()
SHAPE = (3, 6, 6)
CLEAN, OTHERS = batch(SHAPE, 200, seed=1).float(), batch(SHAPE, 150, seed=2).float()


@pytest.mark.parametrize("leads", ["handicapped", "standardised", "plain"])
def test_the_class_maximum_is_drq(leads):
    model = flat(SHAPE).float()
    robust = drq.DRQ(model, views=VIEWS).gated(CLEAN, 0.1, leads=leads)
    clean, others = (table(torch.stack([model(view(x)) for view in VIEWS], 1).detach(), None) for x in (CLEAN, OTHERS))
    gate = rules.learnt(clean, rules.best, leads, 0.1, VIEWS.term_of)
    assert gate.mean == pytest.approx(robust.gate.mean, abs=1e-5)
    decision = robust.decide(OTHERS)
    assert torch.equal(rules.answers(others, rules.best, gate), decision.label)
    assert 0 < int((decision.label != decision.base_label).sum()) < len(OTHERS)


def test_a_record_is_read_again_and_checked(tmp_path):
    logits, y = torch.randn(4, 3, 5).half(), torch.arange(4)
    path = tmp_path / "m" / "clean.npz"
    record.write(path, record.Seen(logits, y, {"model": "m"}))
    found = record.read(path)
    assert torch.equal(found.logits, logits)
    assert torch.equal(found.y, y)
    assert found.about == {"model": "m"}
    assert all(shift.first + shift.count <= record.LAST for shift in record.SHIFTS)
