"""Listening to a follower: what a slow listener was told is a beginning without gaps, and it knows that it is on its own."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from headwater.http.streams import PIECES_BYTES_MAX, PIECES_MAX, Broadcast, Broadcasts, Listener, Piece


def broadcast() -> Broadcast:
    # Any: only what reads would use the service, and nothing reads here.
    service: Any = SimpleNamespace(closing=True)
    return Broadcast(service, "t", lambda: Piece(text=b"", positions={0: 0}), {0: 0})


def test_a_listener_that_is_too_slow_is_let_go_and_has_no_gap() -> None:
    async def run() -> list[dict[int, int]]:
        one, slow = broadcast(), Listener()
        one.listeners.add(slow)
        for number in range(1, PIECES_MAX + 50):
            one._publish(Piece(text=b"%d" % number, positions={0: number}))
        assert slow not in one.listeners
        found = []
        while not slow.is_over:
            piece = await slow.next(seconds=30)
            assert piece is not None
            found.append(piece.positions)
        return found

    assert asyncio.run(run()) == [{0: number} for number in range(1, PIECES_MAX + 1)]


def test_a_listener_is_let_go_by_the_bytes_that_it_leaves_lying() -> None:
    async def run() -> list[dict[int, int]]:
        one, slow, quick = broadcast(), Listener(), Listener()
        one.listeners |= {slow, quick}
        text = b"x" * (PIECES_BYTES_MAX // 4)
        for number in range(1, 11):
            one._publish(Piece(text=text, positions={0: number}))
            assert await quick.next(seconds=30) is not None
        assert one.listeners == {quick}
        assert (quick.bytes_waiting, slow.bytes_waiting) == (0, 4 * len(text))
        found = []
        while not slow.is_over:
            piece = await slow.next(seconds=30)
            found += [] if piece is None else [piece.positions]
        return found

    assert asyncio.run(run()) == [{0: number} for number in range(1, 5)]


def test_whoever_waits_is_woken_when_the_follower_ends() -> None:
    async def run() -> None:
        listener = Listener()
        waiting = asyncio.create_task(listener.next(seconds=600))
        await asyncio.sleep(0)
        listener.drop()
        assert await waiting is None
        assert listener.is_over

    asyncio.run(run())


def test_only_those_who_stand_where_the_follower_does_listen_to_it() -> None:
    async def run() -> None:
        followers = Broadcasts()
        service: Any = SimpleNamespace(closing=True)
        made: list[str] = []

        def make() -> Any:
            made.append("follower")
            return lambda: Piece(text=b"", positions={0: 5})

        first = followers.listen(service, ("t",), "t", make, {0: 5})
        assert first is not None
        assert followers.listen(service, ("t",), "t", make, {0: 4}) is None
        second = followers.listen(service, ("t",), "t", make, {0: 5})
        assert second is not None
        assert second[0] is first[0]
        assert made == ["follower"]
        for _, task in list(followers._running.values()):
            task.cancel()

    asyncio.run(run())
