"""What is measured of the speed of views."""

import torch
from testbed.every_view import batch, flat

from tools.benchmarks.view_speed import bare, measured, table


def test_both_let_the_model_look_as_often():
    model, rows = flat((3, 8, 8)), []
    model.register_forward_hook(lambda _module, given, _output: rows.append(len(given[0])))
    bare(model, batch((3, 8, 8)), 5)
    assert rows == [12] * 5
    found = measured(model, "Rotation(90, 5)", batch((3, 8, 8)), 1)
    looks = 5 * 12 * 3 * 3  # three contestants, two rounds to warm up
    assert looks <= sum(rows) - 60 <= looks + 5  # and rows by which the model was examined
    least = min(found["seconds"]["bare"], found["seconds"]["bare, channels last"])
    assert found["more"] == found["seconds"]["drq"] / least - 1
    shown = table([found]).splitlines()[-1]
    assert "Rotation(90, 5)" in shown
    assert f"{1000 * found['seconds']['drq']:.1f}" in shown
    assert torch.is_grad_enabled()
