"""A RabbitMQ server of its own on 127.0.0.1, with the port mapper that Erlang needs."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.peer_servers import PeerUnavailable, free_port

START_SECONDS_MAX = 60.0
#: Not the wrapper in `sbin`, which changes the account and the environment.
PROGRAM = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")


@contextlib.contextmanager
def rabbitmq_server(folder: Path) -> Iterator[int]:
    """The port of a RabbitMQ that keeps its queues in `folder`."""
    epmd = shutil.which("epmd")
    if not PROGRAM.exists() or epmd is None:
        raise PeerUnavailable("RabbitMQ is not installed: `apt-get install rabbitmq-server`")
    folder.mkdir(parents=True)
    account = pwd.getpwnam("rabbitmq") if os.geteuid() == 0 else None
    if account is not None:
        os.chown(folder, account.pw_uid, account.pw_gid)
        for parent in list(folder.parents)[:3]:  # a temporary folder is closed to other accounts
            if parent.stat().st_uid == 0 and not parent.stat().st_mode & 0o001:
                parent.chmod(parent.stat().st_mode | 0o011)
    port, mapper_port = free_port(), free_port()
    config, plugins = folder / "rabbitmq.conf", folder / "plugins"
    config.write_text(f"listeners.tcp.1 = 127.0.0.1:{port}\ndisk_free_limit.absolute = 50MB\n")
    plugins.write_text("[].")
    environment = {
        **os.environ,
        "HOME": str(folder),
        "RABBITMQ_NODENAME": f"bench{port}@localhost",
        "RABBITMQ_CONFIG_FILE": str(config),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(plugins),
        "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_PID_FILE": str(folder / "pid"),
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        "ERL_EPMD_PORT": str(mapper_port),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
    }

    def started(words: list[str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment,
            cwd=folder,
            user=None if account is None else account.pw_uid,
            group=None if account is None else account.pw_gid,
            extra_groups=None if account is None else [],
        )  # fmt: skip

    # In the foreground: one that the server starts itself detaches, and outlives it.
    mapper = started([epmd, "-address", "127.0.0.1", "-port", str(mapper_port)])
    server = None
    try:
        server = started([str(PROGRAM)])
        _wait_for(server, port)
        yield port
    finally:
        for process in (server, mapper):
            if process is not None:
                _end(process)


def _wait_for(server: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        if server.poll() is not None or time.monotonic() > deadline:
            raise PeerUnavailable("RabbitMQ did not start")
        time.sleep(0.05)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(timeout=30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
