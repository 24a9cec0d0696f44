"""The console on a server's port, where its packages are installed; the server alone where they are not."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from headwater import optional
from headwater.http.server import served_app

if TYPE_CHECKING:
    from headwater.apps.home import Runner as Announced
    from headwater.apps.runner import Runner
    from headwater.services.settings import Settings

PATH = "/console"


def is_installed() -> bool:
    """Whether the packages of the console are there: `pip install "headwater[console]"`."""
    return optional.is_installed("nicegui")


# Any: what the server is given, by the name of its argument.
def console_for_server(*, guarded: bool = False, secure: bool = False) -> dict[str, Any]:
    """What a server is given so that it shows the console; nothing where its packages are not installed."""
    if not is_installed():
        return {}
    from headwater.console.mount import mounted

    return {"mount": [mounted(guarded=guarded, secure=secure)], "public": ["/", PATH]}


def page_of(address: str) -> str | None:
    """What a person opens in a browser; None where the console is not installed."""
    return f"{address}{PATH}" if is_installed() else None


def served_with_console(
    runner: Runner, *, port: int = 0, settings: Settings | None = None
) -> AbstractContextManager[Announced]:
    """Serve a running app with the console while the block runs, as `served_app` does without it."""
    return served_app(runner, port=port, settings=settings, **console_for_server())
