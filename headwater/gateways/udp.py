"""A UDP socket for gateways: bursts of datagrams for each wake-up, and the exact number of those that the kernel dropped.

UDP has no back-pressure: a datagram that finds the receive buffer full is dropped. The kernel counts each of them for each socket
(`SO_MEMINFO`), so that the loss at this end is known exactly. Datagrams that the network lost are not counted here; only sequence
numbers show those.
"""

from __future__ import annotations

import contextlib
import ipaddress
import select
import socket
import struct

from headwater.gateways.errors import AddressUnusable
from headwater.units import MIB

#: Linux: SO_MEMINFO fills an array of nine integers; the last is the number of dropped datagrams.
SO_MEMINFO = 55
SO_RCVBUFFORCE = 33
MEMINFO_COUNT = 9
DROPS = 8
#: How many answers a sender reads before it goes on.
ANSWERS_AT_ONCE = 4_096


#: Host and port; IPv6 has two more.
Address = tuple[str, int] | tuple[str, int, int, int]


class UdpSocket:
    """A bound UDP socket that never blocks in `burst`."""

    def __init__(
        self, gateway: str, host: str, port: int, *, buffer_bytes: int = 64 * MIB, interface: str = ""
    ) -> None:
        try:
            [(family, _, _, _, address), *_] = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
            self.socket = socket.socket(family, socket.SOCK_DGRAM)
        except OSError as error:
            raise AddressUnusable(gateway=gateway, address=f"udp {host}:{port}", why=str(error)) from error
        try:
            _grow(self.socket, buffer_bytes)
            if ipaddress.ip_address(address[0]).is_multicast:
                # Several receivers of one machine may join the group.
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                self.socket.bind(address)
                _join(self.socket, family, str(address[0]), interface)
            else:
                self.socket.bind(address)
        except OSError as error:
            self.socket.close()
            raise AddressUnusable(gateway=gateway, address=f"udp {host}:{port}", why=str(error)) from error
        self.socket.setblocking(False)
        own, port, *_ = self.socket.getsockname()
        self.port: int = int(port)
        #: Also after `close`: the status of a stopped gateway shows it.
        self.address: str = f"udp://{own}:{self.port}"
        self._poll = select.poll()
        self._poll.register(self.socket, select.POLLIN)

    def wait(self, seconds: float) -> bool:
        """Wait for a datagram."""
        return bool(self._poll.poll(seconds * 1_000))

    def drops(self) -> int | None:
        """How many datagrams the kernel has dropped since the socket was bound; None if this system does not say."""
        try:
            data = self.socket.getsockopt(socket.SOL_SOCKET, SO_MEMINFO, 4 * MEMINFO_COUNT)
        except OSError:
            return None
        return int(struct.unpack(f"{len(data) // 4}I", data)[DROPS]) if len(data) == 4 * MEMINFO_COUNT else None

    def burst(self, into: bytearray, *, size_max: int) -> tuple[int, int, int]:
        """Read datagrams that have come, with a line end after each; return the bytes, the datagrams, and those cut at `size_max`."""
        view, receive = memoryview(into), self.socket.recv_into
        end, at, count, cut = len(into) - size_max - 1, 0, 0, 0
        try:
            while at <= end:
                size = receive(view[at : at + size_max], size_max, socket.MSG_TRUNC)
                if size > size_max:
                    cut += 1  # it is rejected whole: half a value is a wrong value
                    continue
                at += size
                into[at] = 10
                at += 1
                count += 1
        except BlockingIOError:
            pass
        return at, count, cut

    def datagrams(self, *, count_max: int, size_max: int) -> tuple[list[tuple[bytes, Address]], int]:
        """Datagrams that have come, each with its sender, and the number of those that were longer than `size_max`."""
        found: list[tuple[bytes, Address]] = []
        cut = 0
        receive = self.socket.recvfrom
        try:
            while len(found) + cut < count_max:
                data, sender = receive(size_max + 1)
                if len(data) > size_max:
                    cut += 1
                else:
                    found.append((data, sender))
        except BlockingIOError:
            pass
        return found, cut

    def discard(self, *, size_max: int, rounds_max: int = 64) -> int:
        """Read what is left and cannot be used, and return how many datagrams that was."""
        into, found = bytearray(2 * MIB), 0
        for _ in range(rounds_max):  # a sender that goes on does not hold up the end
            _, count, cut = self.burst(into, size_max=size_max)
            found += count + cut
            if not count and not cut:
                break
        return found

    def close(self) -> None:
        self.socket.close()


class UdpSender:
    """A UDP socket that sends to one address or multicast group, and receives what is answered."""

    def __init__(self, gateway: str, host: str, port: int, *, interface: str = "", hops: int = 1) -> None:
        try:
            [(family, _, _, _, address), *_] = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
            self.socket = socket.socket(family, socket.SOCK_DGRAM)
        except OSError as error:
            raise AddressUnusable(gateway=gateway, address=f"udp {host}:{port}", why=str(error)) from error
        self.to = address
        try:
            if ipaddress.ip_address(address[0]).is_multicast:
                _send_multicast(self.socket, family, interface, hops)
            self.socket.bind((address[0] if ipaddress.ip_address(address[0]).is_loopback else "", 0))
        except OSError as error:
            self.socket.close()
            raise AddressUnusable(gateway=gateway, address=f"udp {host}:{port}", why=str(error)) from error
        self._poll = select.poll()
        self._poll.register(self.socket, select.POLLIN)

    def send(self, data: bytes, *, to: Address | None = None) -> None:
        """Send a datagram. One that the network refuses is lost, as one that it drops."""
        with contextlib.suppress(OSError):
            self.socket.sendto(data, to or self.to)

    def wait(self, seconds: float) -> bool:
        """Wait for an answer."""
        return bool(self._poll.poll(seconds * 1_000))

    def received(self) -> list[tuple[bytes, Address]]:
        """The answers that have come, up to some hundred."""
        found: list[tuple[bytes, Address]] = []
        with contextlib.suppress(OSError):
            while len(found) < ANSWERS_AT_ONCE:
                found.append(self.socket.recvfrom(65_535, socket.MSG_DONTWAIT))
        return found

    def close(self) -> None:
        self.socket.close()


def _grow(own: socket.socket, size: int) -> None:
    """Ask for a receive buffer. Beyond `net.core.rmem_max` only a privileged process gets it."""
    try:
        own.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, size)
    except OSError:
        own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)


def _join(own: socket.socket, family: int, group: str, interface: str) -> None:
    if family == socket.AF_INET:
        membership = socket.inet_aton(group) + socket.inet_aton(interface or "0.0.0.0")
        own.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
    else:
        index = socket.if_nametoindex(interface) if interface else 0
        membership = socket.inet_pton(socket.AF_INET6, group) + struct.pack("@I", index)
        own.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, membership)


def _send_multicast(own: socket.socket, family: int, interface: str, hops: int) -> None:
    if family == socket.AF_INET:
        own.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, hops)
        if interface:
            own.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(interface))
    else:
        own.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, hops)
        if interface:
            own.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, socket.if_nametoindex(interface))
