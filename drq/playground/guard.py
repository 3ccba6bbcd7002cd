"""Protect the server: refuse requests for other hosts and large requests, and keep page and server from contacting others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from drq.errors import imported

MOST_BYTES = 12 * 2**20  # of a request: an upload with its encoding fits
POLICY = "; ".join(
    (
        "default-src 'self'",
        "script-src 'self' 'unsafe-inline' 'unsafe-eval'",  # Gradio's page has both
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "font-src 'self' data:",
        "connect-src 'self'",
        "frame-ancestors 'none'",
        "base-uri 'self'",
        "form-action 'self'",
    )
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}
PURPOSE, REMEDY = "drq play", "pip install 'decision-region-quantification[app]'"
LOCAL = ("127.0.0.1", "localhost", "[::1]")


class Guard:
    """An ASGI application that checks every request before another application sees it.

    Args:
        app: the application that is protected.
        local: whether the server is for this machine alone. Then a request that names another host is refused: a page from
            elsewhere whose name was made to point here (DNS rebinding) must not reach it.
    """

    def __init__(self, app: Any, local: bool) -> None:
        self.app, self.local = app, local

    @classmethod
    def middleware(cls, local: bool) -> Any:
        """Return the guard in the form that Starlette expects."""
        return imported("starlette.middleware", PURPOSE, REMEDY).Middleware(cls, local=local)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
        host = headers.get(b"host", "").rpartition(":")[0] or headers.get(b"host", "")
        if self.local and host not in LOCAL:
            await _refuse(send, 421)
            return
        length = headers.get(b"content-length", "0")
        if not length.isdigit() or int(length) > MOST_BYTES:
            await _refuse(send, 413)
            return

        received = 0

        async def receive_limited() -> Any:
            """End a request that does not state its length as soon as it gets too large."""
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            return message if received <= MOST_BYTES else {"type": "http.disconnect"}

        async def send_with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *((k.encode(), v.encode()) for k, v in HEADERS.items())]
            await send(message)

        await self.app(scope, receive_limited, send_with_headers)


async def _refuse(send: Any, status: int) -> None:
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


@contextmanager
def no_downloads() -> Iterator[None]:
    """Keep Gradio from fetching URLs inside the context, since a request may name one in place of a file."""
    processing = imported("gradio.processing_utils", PURPOSE, REMEDY)
    original = processing.async_ssrf_protected_download

    async def refuse(url: str, _: str) -> str:
        raise ValueError(f"files are uploaded, never fetched: {url[:60]!r}")

    processing.async_ssrf_protected_download = refuse
    try:
        yield
    finally:
        processing.async_ssrf_protected_download = original
