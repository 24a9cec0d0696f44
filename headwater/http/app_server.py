"""A running app on the server's port: its queries and views beside the log that they read and write."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from headwater.alerts import Channels, LogMeasures, Watcher
from headwater.config import Config
from headwater.http.application import Mount, application
from headwater.http.server import Address, bound, server_of
from headwater.services.settings import Settings

if TYPE_CHECKING:
    from headwater.apps.home import Runner as Announced
    from headwater.apps.runner import Runner


@contextlib.contextmanager
def served_app(
    runner: Runner,
    *,
    port: int = 0,
    settings: Settings | None = None,
    mount: Iterable[Mount] = (),
    public: Iterable[str] = (),
) -> Iterator[Announced]:
    """Serve an app and its log while the block runs; the address and the token stand in the app's home.

    The token in the app's home is good for everything, and those of the log for what their scopes say.
    """
    settings = settings or Settings()
    address = Address(port=port)
    listening = bound(address)
    announced = runner.home.announce(address.url(listening.getsockname()[1]))
    app = application(
        runner.log,
        settings=settings,
        master=announced.token,
        runner=runner,
        mount=mount,
        public=public,
        watcher=_watcher(runner),
    )
    server = server_of(app, address)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, name="headwater-api", daemon=True)
    thread.start()
    try:
        yield announced
    finally:
        runner.home.withdraw()
        server.should_exit = True
        thread.join(5)
        listening.close()


def _watcher(runner: Runner) -> Watcher:
    """Alert rules are looked at by the process that runs the app, with its own queries and views."""
    measures = LogMeasures(runner.log, app=runner.app.name, statuses=runner.statuses, keeper=runner.keeper)
    return Watcher(runner.log, measures, sender=Channels.of(Config.load()))
