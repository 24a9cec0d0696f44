"""A running app on the server's port: its queries and views beside the log that they read and write."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headwater.alerts import Channels, LogMeasures, Watcher
from headwater.config import Config
from headwater.runtime.api import routes_of
from headwater.server.application import Mount, application
from headwater.server.serving import Address, bound, server_of
from headwater.server.settings import Settings
from headwater.server.statements import Asked, Statements, answered

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.runtime.home import Runner as Announced
    from headwater.runtime.runner import Runner
    from headwater.views.bounds import Bounds


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
    from headwater.views.http import router as view_routes

    settings = settings or Settings()
    address = Address(port=port)
    listening = bound(address)
    announced = runner.home.announce(address.url(listening.getsockname()[1]))

    def elsewhere(statement: str, parameters: Any, bounds: Bounds) -> pa.Table:
        asked = Asked(statement=statement, parameters=parameters, app=runner.app.name, bounds=bounds)
        statements: Statements | None = app.state.service.statements
        return answered(runner.log, asked) if statements is None else statements.query(asked)

    # Whoever runs a statement over large views needs their rows as they are; what it makes of them is bounded there.
    bounds = replace(settings.statement_bounds, bytes_max=None)
    app = application(
        runner.log,
        settings=settings,
        master=announced.token,
        routers=[routes_of(runner), view_routes(runner.keeper, bounds=bounds, elsewhere=elsewhere)],
        statuses=runner.statuses,
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
