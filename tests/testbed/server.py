"""A server on this machine that misbehaves in every way a real one does."""

import hashlib
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from drq.errors import InputError
from drq.system.downloads import RemoteFile

CONTENT = bytes(range(256)) * 4096  # 1 MiB


class Server(ThreadingHTTPServer):
    """One file; how it is served is up to the test."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.content = CONTENT
        self.asked: list[str | None] = []  # the Range of every request
        self.ranges = True  # whether Range is understood
        self.drop: list[int] = []  # for each coming request, after how many bytes the connection drops
        self.status: list[int] = []  # for each coming request, an error instead
        self.shift = 0  # by how much a range is answered wrongly
        self.length = True  # whether the size is told
        self.delay = 0.0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/files/data.bin?download=1"

    def remote(self, content: bytes | None = None) -> RemoteFile:
        return RemoteFile(self.url, hashlib.md5(self.content if content is None else content).hexdigest())


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self):
        server, wanted = self.server, self.headers.get("Range")
        server.asked.append(wanted)
        time.sleep(server.delay)
        if server.status and (status := server.status.pop(0)):
            self.send_error(status)
            return
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and server.ranges else 0
        if start >= len(server.content) > 0:
            self.send_error(416)
            return
        body = server.content[start + server.shift if start else 0 :]
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start + server.shift}-{len(server.content) - 1}/{len(server.content)}")
        if server.length:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: server.drop.pop(0)] if server.drop else body)

    def log_message(self, *_):
        """Nothing."""


def left(path: Path) -> list[str]:
    return sorted(each.name for each in path.parent.iterdir())


@contextmanager
def refused(*named: str):
    with pytest.raises(InputError) as error:
        yield
    message = str(error.value)
    assert "\n" not in message
    for each in named:
        assert each in message
