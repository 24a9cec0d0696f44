"""Hosts on one machine: network namespaces behind a bridge, whose links can be cut."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Host:
    """A namespace with an address of its own."""

    name: str
    address: str

    @property
    def before(self) -> list[str]:
        """The words in front of a command that is to run on the host."""
        return ["ip", "netns", "exec", self.name, "env", f"SPARK_LOCAL_IP={self.address}"]

    def cut(self) -> None:
        """Take the link away, as if its cable were pulled."""
        _ip("link", "set", f"{self.name}-o", "down")

    def join(self) -> None:
        _ip("link", "set", f"{self.name}-o", "up")


@dataclass(frozen=True)
class Network:
    """A bridge, and the hosts behind it."""

    address: str
    hosts: list[Host] = field(default_factory=list)


def can_have_hosts() -> bool:
    """Whether this process may make network namespaces."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    name = f"hw{os.getpid() % 100_000}t"
    if subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode != 0:
        return False
    _ip("netns", "del", name)
    return True


@contextlib.contextmanager
def network(count: int) -> Iterator[Network]:
    """A bridge on this machine with so many hosts, gone afterwards."""
    mark = os.getpid() % 100_000
    bridge, block = f"hw{mark}", f"10.{200 + mark % 50}.{mark % 250}"
    made = Network(address=f"{block}.1")
    try:
        _ip("link", "add", bridge, "type", "bridge")
        _ip("addr", "add", f"{made.address}/24", "dev", bridge)
        _ip("link", "set", bridge, "up")
        for number in range(count):
            host = Host(f"hw{mark}{chr(97 + number)}", f"{block}.{10 + number}")
            outer, inner = f"{host.name}-o", f"{host.name}-i"
            _ip("netns", "add", host.name)
            made.hosts.append(host)
            _ip("link", "add", outer, "type", "veth", "peer", "name", inner)
            _ip("link", "set", inner, "netns", host.name)
            _ip("link", "set", outer, "master", bridge)
            _ip("link", "set", outer, "up")
            for words in (
                ["addr", "add", f"{host.address}/24", "dev", inner],
                ["link", "set", inner, "up"],
                ["link", "set", "lo", "up"],
            ):
                _ip("-n", host.name, *words)
        yield made
    finally:
        for host in made.hosts:
            subprocess.run(["ip", "netns", "del", host.name], capture_output=True, check=False)
        subprocess.run(["ip", "link", "del", bridge], capture_output=True, check=False)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)
