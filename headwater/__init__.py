"""Headwater: an event-streaming platform in one Python package.

    import headwater as hw

    log = hw.open("./data")

This door is lazy (PEP 562): `import headwater` costs almost nothing, and Arrow is loaded when a log is first opened.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headwater.apps.app import App
    from headwater.apps.declaration import Table
    from headwater.config import Config
    from headwater.log import Log, Retention, open
    from headwater.queues import Retry
    from headwater.schema.event_time import EventTime
    from headwater.sourcing import Decider, Entities, Rejected
    from headwater.spark.session import session

    __version__: str

__all__ = [
    "App",
    "Config",
    "Decider",
    "Entities",
    "EventTime",
    "Log",
    "Rejected",
    "Retention",
    "Retry",
    "Table",
    "__version__",
    "open",
    "session",
]

_HOMES = {
    "App": "headwater.apps",
    "Config": "headwater.config",
    "Decider": "headwater.sourcing",
    "Entities": "headwater.sourcing",
    "EventTime": "headwater.schema",
    "Log": "headwater.log",
    "Rejected": "headwater.sourcing",
    "Retention": "headwater.log",
    "Retry": "headwater.queues",
    "Table": "headwater.apps",
    "open": "headwater.log",
    "session": "headwater.spark",
}


# Any: what a name stands for is known to type checkers from the imports above.
def __getattr__(name: str) -> Any:
    if name == "__version__":
        value: Any = _version()
    elif name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value  # so that the next look-up does not come here
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _version() -> str:
    from importlib.metadata import version

    return version("headwater")
