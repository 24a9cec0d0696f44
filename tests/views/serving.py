"""A keeper's views over HTTP, on a free port of this machine, as the runner serves them."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse

from headwater.errors import HeadwaterError
from headwater.views import ViewKeeper
from headwater.views.http import router

START_SECONDS_MAX = 120.0


@contextlib.contextmanager
def served(keeper: ViewKeeper) -> Iterator[str]:
    """Serve the views while the block runs; gives the address."""
    app = FastAPI()
    app.include_router(router(keeper))

    @app.exception_handler(HeadwaterError)
    async def refused(_: Request, error: HeadwaterError) -> JSONResponse:
        facts = {
            name: value if isinstance(value, (int, float)) else str(value) for name, value in error.facts().items()
        }
        return JSONResponse({"error": type(error).__name__, "message": str(error), "facts": facts}, 400)

    # Told that it is TCP, or connections would wait 40 ms for each answer: asyncio turns that off for TCP only.
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.bind(("127.0.0.1", 0))
    listening.listen(128)
    # A subscription that a client has left open does not hold up the end; that it is cut off is no news.
    server = uvicorn.Server(uvicorn.Config(app, log_level="critical", timeout_graceful_shutdown=0, ws="none"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    deadline = time.monotonic() + START_SECONDS_MAX
    while not server.started and time.monotonic() < deadline:
        thread.join(0.01)
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)
        listening.close()
