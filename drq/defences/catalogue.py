"""The defences of other authors that have a name in specs."""

from __future__ import annotations

from collections.abc import Mapping

from drq import registry
from drq.defences.defence import Peer

PEERS: Mapping[str, type[Peer]] = registry.PEERS
