"""A server of files."""

import threading

import pytest
from testbed.server import Server

from drq.system import downloads


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(downloads, "PAUSE", 0.0)
    monkeypatch.setattr(downloads, "WAIT", 0.01)
    monkeypatch.setattr(downloads, "TIMEOUT", 2.0)
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join(5)
