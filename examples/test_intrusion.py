"""The intrusion alarm, as its user tests it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import intrusion

from headwater.testing import AppTest


def test_port_scans_guessed_passwords_and_strangers_are_noticed() -> None:
    with AppTest(intrusion.app) as test:
        start = test.now

        def connections(source: str, ports: int, minute: float) -> list[dict[str, Any]]:
            at = start + timedelta(minutes=minute)
            return [{"source": source, "port": port, "at": at} for port in range(ports)]

        def logins(user: str, source: str, accepted: bool, times: int, minute: float) -> list[dict[str, Any]]:
            at = start + timedelta(minutes=minute)
            return [{"user": user, "source": source, "accepted": accepted, "at": at}] * times

        test.feed("connections", [*connections("scanner", 150, 0), *connections("browser", 3, 0)])
        test.feed("connections", [*connections("scanner", 150, 1), *connections("browser", 3, 1)])
        test.feed("logins", logins("ann", "office", True, 1, 0))
        test.feed("logins", [*logins("ann", "office", True, 1, 1), *logins("ann", "cellar", True, 1, 1)])
        test.feed("logins", logins("root", "cellar", False, 12, 2))
        for minute in (60, 61):  # the watermark follows from what earlier batches saw, in all partitions
            test.drain()
            for number in range(20):
                test.feed("connections", connections(f"later {number}", 1, minute))
                test.feed("logins", logins(f"later {number}", "home", False, 1, minute))
        found = test.rows("scans")
        assert {row["source"] for row in found} == {"scanner"}
        assert all(row["ports"]["lower"] <= 150 <= row["ports"]["upper"] for row in found)
        assert {row["source"] for row in test.rows("guessing")} == {"cellar"}
        assert [(row["user"], row["source"]) for row in test.rows("strangers")] == [
            ("ann", "office"),
            ("ann", "cellar"),
        ]
