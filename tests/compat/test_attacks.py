"""Libraries of attacks take DRQ as the model that they attack, unchanged."""

import logging

import numpy as np
import pytest
import torch
from testbed.compat import accuracy, alone, around_digits, batch
from torch import Tensor

import drq

apart = pytest.fixture(autouse=True)(alone)
ATTACK = 0.2  # the radius of attacks in linf


def check_attack(robust: drq.DRQ, x: Tensor, attacked: Tensor, y: Tensor) -> None:
    """It stays within its ball, and costs far more than noise of its size, which costs at most 0.13."""
    assert drq.Ball(x, ATTACK, "linf", bounds=(0, 1)).contains(attacked).all()
    before, after = accuracy(robust, x, y), accuracy(robust, attacked, y)
    assert before >= 0.85
    assert after <= before - 0.3


def test_foolbox() -> None:
    import foolbox

    robust, (x, y) = around_digits(), batch()
    attack = foolbox.attacks.LinfPGD(rel_stepsize=0.25, steps=10)
    _, attacked, fooled = attack(foolbox.PyTorchModel(robust, bounds=(0, 1)), x, y, epsilons=ATTACK)
    check_attack(robust, x, attacked, y)
    assert torch.equal(fooled, robust.decide(attacked).label != y)


def test_torchattacks() -> None:
    import torchattacks

    robust, (x, y) = around_digits(), batch()
    attacked = torchattacks.PGD(robust, eps=ATTACK, alpha=ATTACK / 4, steps=10)(x, y)
    check_attack(robust, x, attacked, y)
    assert not robust.training


def test_adversarial_robustness_toolbox() -> None:
    from art.attacks.evasion import ProjectedGradientDescent
    from art.estimators.classification import PyTorchClassifier

    robust, (x, y) = around_digits(), batch()
    shape = {"input_shape": (1, 8, 8), "nb_classes": 10}
    client = PyTorchClassifier(robust, loss=torch.nn.CrossEntropyLoss(), clip_values=(0, 1), device_type="cpu", **shape)
    np.testing.assert_array_equal(client.predict(x.numpy()).argmax(1), robust.decide(x).label)
    attack = ProjectedGradientDescent(client, eps=ATTACK, eps_step=ATTACK / 4, max_iter=10, verbose=False)
    attacked = attack.generate(x.numpy(), y.numpy())
    check_attack(robust, x, torch.as_tensor(attacked), y)


def test_pyautoattack(caplog: pytest.LogCaptureFixture) -> None:
    """It says that the defence is dynamic, and nothing else."""
    from pyautoattack import AutoAttack

    robust, (x, y) = around_digits(), batch()
    attack = AutoAttack(robust, norm="Linf", eps=ATTACK, seed=0, version="custom", attacks=["apgd-ce"])
    attack.apgd.n_restarts, attack.apgd.n_iter = 1, 10
    with caplog.at_level(logging.WARNING, "auto-attack"):
        attacked, label = attack.run_standard_evaluation(x, y)
    check_attack(robust, x, attacked, y)
    assert torch.equal(label, robust.decide(attacked).label)
    flags = [record.getMessage().split("!")[0] for record in caplog.records]
    assert flags == ["it seems to be a dynamic defense"]
