"""Write all that the docs show of records: ``make pages``, or ``python -m tools.pages``, and no model is asked."""

from tools import ROOT
from tools.pages import blocks, ledger

for name in blocks.PAGES:
    text = blocks.updated(name)
    (ROOT / name).write_text(text, encoding="utf-8")
    print(name)
for path in ledger.write(ROOT / "results" / "paper", ROOT / "docs" / "ledger.md"):
    print(path.relative_to(ROOT))
