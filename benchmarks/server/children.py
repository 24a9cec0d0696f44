"""The processes that the benchmark needs: a server, and subscribers of a tail."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx

import headwater.log as hwlog
from headwater.http import Address, Settings, served


@contextlib.contextmanager
def server(folder: Path, *, confined: bool = True) -> Iterator[str]:
    """A server of the log in a folder, in a process of its own; SQL runs in a further one, unless it is not `confined`."""
    kind = "serve" if confined else "serve-unconfined"
    words = [sys.executable, "-m", "benchmarks.server.children", kind, str(folder)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.communicate()


@contextlib.contextmanager
def console(folder: Path) -> Iterator[str]:
    """`headwater serve` with its console, as a user starts it."""
    words = [sys.executable, "-m", "headwater.cli", "--log", str(folder), "--output", "jsonl", "serve", "--port", "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())["address"]
        finally:
            process.terminate()


def _serve(folder: str, *, confined: bool) -> None:
    settings = Settings(requests_per_second_max=1e9)
    with hwlog.open(folder) as log:
        serving = served(log, Address(port=0), settings=settings, confined=confined)
        with serving as address:
            print(address, flush=True)
            sys.stdin.read()


async def _subscribe(address: str, subscribers: int, rows: int) -> list[float]:
    """How many milliseconds each row took to each subscriber."""
    latencies: list[float] = []
    ready = asyncio.Semaphore(0)

    async def one(client: httpx.AsyncClient) -> None:
        left = rows
        async with client.stream("GET", f"{address}/api/v1/topics/rows/tail", params={"column": "sent_ns"}) as answer:
            async for line in answer.aiter_lines():
                if line.startswith(": tail of"):
                    ready.release()
                elif line.startswith("data: "):
                    latencies.append((time.monotonic_ns() - json.loads(line[6:])["sent_ns"]) / 1e6)
                    left -= 1
                    if not left:
                        return

    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(timeout=60, trust_env=False, limits=limits) as client, asyncio.TaskGroup() as group:
        for _ in range(subscribers):
            group.create_task(one(client))
        for _ in range(subscribers):
            await ready.acquire()
        print("ready", flush=True)
    return latencies


if __name__ == "__main__":
    if sys.argv[1].startswith("serve"):
        _serve(sys.argv[2], confined=sys.argv[1] == "serve")
    else:
        print(json.dumps(asyncio.run(_subscribe(sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))), flush=True)
