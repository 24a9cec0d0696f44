"""What one run of a command opens is closed at its end."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

from headwater.cli.session import Flags, Session


def test_what_services_share_is_closed_with_the_log(tmp_path: Path) -> None:
    closed: list[str] = []
    with Session.begin(Flags(log=str(tmp_path))).services(create=True) as services:
        host = services.topics.host
        host.share("indexes", lambda: SimpleNamespace(close=lambda: closed.append("indexes")))
    assert (closed, host.closing) == (["indexes"], True)
