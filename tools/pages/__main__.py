"""Write all tables and pages that are made from records: ``make pages``, or ``python -m tools.pages``."""

from tools import ROOT
from tools.pages import blocks, ledger

for name in blocks.PAGES:
    text = blocks.update_tables(name)
    (ROOT / name).write_text(text, encoding="utf-8")
    print(name)
for path in ledger.write(ROOT / "results" / "paper", ROOT / "docs" / "ledger.md"):
    print(path.relative_to(ROOT))
