"""Define ``drq threats``, which lists threats."""

from __future__ import annotations

from drq.commands.app import AsJson, app, examples, print_result


@app.command(epilog=examples("drq threats", "drq threats --json"))
def threats(as_json: AsJson = False) -> None:
    """List attacks, corruptions and spatial shifts.

    In Python: drq.threats.PGD("linf", 8/255)(model, x, y).
    """
    from drq.commands import terminal
    from drq.threats import list as entries

    print_result(entries(), as_json, terminal.show_threats)
