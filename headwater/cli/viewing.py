"""Where the views of a log can be read now, for a command."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwater.cli.session import Session
    from headwater.log import EmbeddedLog
    from headwater.runtime.viewing import Views


def views_of(session: Session, log: EmbeddedLog, app: str | None) -> AbstractContextManager[Views]:  # noqa: ARG001
    """The views of the log's apps, or of one of them, while the block runs."""
    from headwater.runtime.viewing import views_of

    return views_of(log, app)
