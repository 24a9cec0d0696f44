"""The views of a keeper over HTTP, as a runner serves them, on a free port of this machine."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import uvicorn
from fastapi import FastAPI

from headwater.views import ViewKeeper
from headwater.views.http import router


@contextlib.contextmanager
def served(keeper: ViewKeeper) -> Iterator[str]:
    """Serve the views while the block runs; gives the address."""
    app = FastAPI()
    app.include_router(router(keeper))
    # Told that it is TCP, or connections would wait 40 ms for each answer: asyncio turns that off for TCP only.
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.bind(("127.0.0.1", 0))
    listening.listen(128)
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1, ws="none"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        while not server.started and thread.is_alive():
            thread.join(0.01)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(10)
        listening.close()
