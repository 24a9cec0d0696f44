"""What a series of kills has come to, and how it is told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.chaos.kills import VICTIMS, Order


@dataclass
class Tally:
    """What a run has come to."""

    kills: Counter[tuple[str, str]] = field(default_factory=Counter)
    lives: int = 0
    seconds: float = 0.0
    orphans: list[str] = field(default_factory=list)
    events: list[str] = field(default_factory=list)
    left_out: tuple[str, ...] = ()
    """Points that this machine cannot come to."""

    def at(self, point: str) -> int:
        return sum(self.kills[point, victim] for victim in VICTIMS)


def report(tally: Tally, points: Sequence[str], *, title: str, victims: Sequence[str] = VICTIMS) -> str:
    """The kills by point and victim as a table; without the victims where there is one kind of them."""
    shown = victims if len(victims) > 1 else ()
    lines = ["", f"{title:24}" + "".join(f"{victim:>8}" for victim in shown) + f"{'kills':>8}"]
    lines += [
        f"{point:24}" + "".join(f"{tally.kills[point, victim]:>8}" for victim in shown) + f"{tally.at(point):>8}"
        for point in points
    ]
    sums = [sum(tally.kills[point, victim] for point in points) for victim in shown]
    kills = sum(tally.at(point) for point in points)
    lines += [f"{'all':24}" + "".join(f"{one:>8}" for one in sums) + f"{kills:>8}"]
    if shown:
        lines += [
            "driver: Python and its JVM at once; jvm: the JVM alone; worker: the Python process at the point alone"
        ]
    lines += ["", f"{kills} kills, {tally.lives} processes started, {tally.seconds:.0f} s", *tally.events]
    if tally.orphans:
        lines += ["processes left behind:", *(f"  {one}" for one in tally.orphans)]
    return "\n".join(lines)


def missed(tally: Tally, orders: Sequence[Order], points: Sequence[str]) -> list[str]:
    """Points without a kill: of all points, where there are enough kills for all."""
    wanted = points if len(orders) >= len(points) else [order.point for order in orders]
    return [point for point in wanted if not tally.at(point) and point not in tally.left_out]
