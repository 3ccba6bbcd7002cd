"""What keeps the server to itself: other hosts and large requests are refused."""

import asyncio

import pytest

from drq.playground.guard import MOST_BYTES, Guard


def reply(scope, local=True):
    """The status and the headers that the guard sends for a request."""
    sent = []

    async def app(_, __, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def send(message):
        sent.append(message)

    asyncio.run(Guard(app, local)({"type": "http", **scope}, None, send))
    return sent[0]["status"], dict(sent[0]["headers"])


@pytest.mark.parametrize(
    ("host", "status"), [("127.0.0.1:7860", 200), ("localhost", 200), ("[::1]:80", 200), ("evil.example:7860", 421), ("", 421)]
)
def test_another_host_is_refused(host, status):
    assert reply({"headers": [(b"host", host.encode())]})[0] == status
    assert reply({"headers": [(b"host", host.encode())]}, local=False)[0] == 200


def test_large_requests_are_refused_and_pages_load_nothing_from_elsewhere():
    host = (b"host", b"localhost")
    assert reply({"headers": [host, (b"content-length", str(MOST_BYTES + 1).encode())]})[0] == 413
    assert reply({"headers": [host, (b"content-length", b"-1")]})[0] == 413
    status, headers = reply({"headers": [host, (b"content-length", b"10")]})
    assert status == 200
    assert b"default-src 'self'" in headers[b"content-security-policy"]
    assert b"http" not in headers[b"content-security-policy"]


def test_a_request_that_hides_its_size_is_cut_off():
    seen = []

    async def app(_, receive, __):
        while (message := await receive())["type"] == "http.request":
            seen.append(len(message["body"]))

    parts = iter([{"type": "http.request", "body": b"0" * 2**20, "more_body": True}] * 50)

    async def receive():
        return next(parts, {"type": "http.disconnect"})

    asyncio.run(Guard(app, True)({"type": "http", "headers": [(b"host", b"localhost")]}, receive, None))
    assert sum(seen) <= MOST_BYTES
