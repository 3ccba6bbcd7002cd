"""The command that lists threats: threats."""

from __future__ import annotations

from drq.commands.app import AsJson, app, examples, put


@app.command(epilog=examples("drq threats", "drq threats --json"))
def threats(as_json: AsJson = False) -> None:
    """List every attack, corruption and spatial shift, with one line on each.

    In Python: drq.threats.PGD("linf", 8/255)(model, x, y).
    """
    from drq.commands import terminal
    from drq.threats import list as entries

    put(entries(), as_json, terminal.families)
