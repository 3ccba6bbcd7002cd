"""Fixtures of evaluations."""

from pathlib import Path

import pytest
from testbed.resumed import Counting

import drq
from drq import Run, Spec
from drq.evaluation import loop


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch):
    """Evaluate with a counting engine, which comes back with the run; None where it was interrupted."""

    def evaluate(spec: Spec, out: Path, stop: int = 1000) -> tuple[Run | None, list[str]]:
        engine = Counting(stop)
        with monkeypatch.context() as patch:
            patch.setattr(loop, "chosen_engine", lambda *_: engine)
            try:
                return drq.evaluate(spec, out), engine.judged
            except KeyboardInterrupt:
                return None, engine.judged

    return evaluate
