"""The least that an ASGI server can do with a request: read it and send it back; what our routes are held against."""

from __future__ import annotations

import socket
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

import uvicorn

Message = MutableMapping[str, Any]


async def app(
    scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
) -> None:
    """Answer with the body that came."""
    if scope["type"] != "http":
        return
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def main(port_file: str) -> None:
    """Serve the echo with uvicorn's defaults on a free port, which is written to a file."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        Path(port_file).write_text(str(listener.getsockname()[1]), encoding="utf-8")
        config = uvicorn.Config(app, http="httptools", log_level="warning", access_log=False)
        uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main(sys.argv[1])
