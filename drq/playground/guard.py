"""What keeps the server to itself: requests must be for it and not too large, and neither page nor server asks others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from drq.errors import imported

BYTES = 12 * 2**20  # of a request, at most: an upload with its wrapping fits
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
    """An ASGI application around another.

    Args:
        app: the other.
        local: whether the server is for this machine alone. Then a request that names another host is refused: a page from
            elsewhere whose name was made to point here must not reach it.
    """

    def __init__(self, app: Any, local: bool) -> None:
        self.app, self.local = app, local

    @classmethod
    def on(cls, local: bool) -> Any:
        """As Starlette wants it."""
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
        if not length.isdigit() or int(length) > BYTES:
            await _refuse(send, 413)
            return

        taken = 0

        async def received() -> Any:
            """One that does not say how large it is ends where it gets too large."""
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            return message if taken <= BYTES else {"type": "http.disconnect"}

        async def sent(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *((k.encode(), v.encode()) for k, v in HEADERS.items())]
            await send(message)

        await self.app(scope, received, sent)


async def _refuse(send: Any, status: int) -> None:
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


@contextmanager
def nothing_fetched() -> Iterator[None]:
    """Meanwhile Gradio fetches no addresses: who asks may name one in the place of any file, and the server would go there."""
    processing = imported("gradio.processing_utils", PURPOSE, REMEDY)
    real = processing.async_ssrf_protected_download

    async def refused(url: str, _: str) -> str:
        raise ValueError(f"files are uploaded, never fetched: {url[:60]!r}")

    processing.async_ssrf_protected_download = refused
    try:
        yield
    finally:
        processing.async_ssrf_protected_download = real
