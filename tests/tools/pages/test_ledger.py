"""The ledger that is made of kept records."""

from testbed.repository import ROOT
from testbed.reproduced import run, table4

from drq.reproduction import experiments, kept_records
from tools.pages import ledger, peers, presets, real


def test_the_ledger_has_every_entry(tmp_path):
    folder = tmp_path / "kept"
    empty = ledger.ledger(folder)
    beyond = peers.page(folder) + presets.page(folder) + real.page(folder) + (ROOT / "docs" / "views.md").read_text()
    for entry in experiments.entries().values():
        assert f"`drq reproduce {entry.name}" in (beyond if entry.kind == "beyond" else empty), entry.name
    assert all(gap.ours in empty for gap in experiments.gaps())
    assert "| cells that were run; two models may stand in for one | 0 |" in empty
    kept_records.write_record(run(tmp_path / "run", table4(20, 100), "table4"), folder)
    page = ledger.ledger(folder)
    assert page == ledger.ledger(folder)
    line = "| cifar10-linf | cifar10 | worst of ensemble | DRQ linf | 48.52 | 42.00 [38.98, 45.08] | +5.15 | -8.00 ["
    assert line in page
    assert "| opposite | 1,000 | 280 |" in page
    assert "- opposite: cifar10-linf, cifar10, worst case, DRQ linf: " in page
    assert "| gains of the opposite sign | 1 |" in page
    assert f"seed 3; spec abababababab; torch {table4(1, 1)['torch_version'][0]}." in page
