"""ZeroMQ sockets for gateways, and the position that each message of a gateway has with it.

There is no broker: what waits in the queues of a sender or a receiver is lost with its process, and PUB drops what a slow subscriber has no
room for. So a message has the place of its row in a frame of its own, by which a receiver counts what is missing, and tells what comes
again after a restart of the sender.
"""

from __future__ import annotations

import contextlib
import hashlib
import struct
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headwater.errors import ArgumentInvalid
from headwater.gateways.errors import AddressUnusable
from headwater.gateways.secret import read_secret
from headwater.optional import require
from headwater.units import MIB

if TYPE_CHECKING:
    import zmq
    from zmq.auth.thread import ThreadAuthenticator

MAGIC = b"HWP1"
#: Of a key of CURVE, as text.
KEY_CHARACTERS = 40
_POSITION = struct.Struct(">4s8sIQ")
#: Partitions of senders whose positions a receiver remembers.
SOURCES_MAX = 10_000


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """The addresses of a socket, and the bounds of its queues: so many messages for each peer.

    A socket binds its addresses and waits for peers, or connects to those of others, in any order: ZeroMQ connects again by itself.
    With a secret key (`curve_key_env` or `curve_key_file`) all is encrypted by CURVE. A socket that connects needs the public key
    of the other side as well, `curve_server_key`. A socket that binds takes all who know its public key, or only those whose
    public keys are `curve_clients`.
    """

    addresses: tuple[str, ...] = ()
    bind: bool = False
    high_water_mark: int = 10_000
    #: ZeroMQ closes the connection of a peer that sends a larger message.
    message_bytes_max: int = 16 * MIB
    #: The environment variable, or the file, with the secret key of CURVE.
    curve_key_env: str = ""
    curve_key_file: str = ""
    #: The public key of the side that binds.
    curve_server_key: str = ""
    #: The public keys of those that may connect, if not all may.
    curve_clients: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.addresses:
            raise ArgumentInvalid(name="addresses", value=(), expected="at least one address: tcp://HOST:PORT")
        for name in ("high_water_mark", "message_bytes_max"):
            if getattr(self, name) < 1:
                raise ArgumentInvalid(name=name, value=getattr(self, name), expected="at least 1")
        self._check_keys()

    def _check_keys(self) -> None:
        encrypted = bool(self.curve_key_env or self.curve_key_file)
        for name, keys in (("curve_server_key", (self.curve_server_key,)), ("curve_clients", self.curve_clients)):
            for key in filter(None, keys):
                if len(key) != KEY_CHARACTERS:
                    raise ArgumentInvalid(name=name, value=key, expected=f"public keys of {KEY_CHARACTERS} characters")
        if self.curve_clients and not (encrypted and self.bind):
            expected = "none without `bind` and a secret key"
            raise ArgumentInvalid(name="curve_clients", value=self.curve_clients, expected=expected)
        if bool(self.curve_server_key) != (encrypted and not self.bind):
            expected = "the public key of the other side, with a secret key and without `bind`"
            raise ArgumentInvalid(name="curve_server_key", value=self.curve_server_key, expected=expected)


class Socket:
    """A socket that is bound or connected."""

    def __init__(self, gateway: str, endpoint: Endpoint, kind: str, *, subscribe: tuple[str, ...] = ()) -> None:
        require("zmq", extra="zeromq")
        import zmq

        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.socket: zmq.Socket[bytes] = self._context.socket(getattr(zmq, kind.upper()))
        self.socket.set_hwm(endpoint.high_water_mark)
        self.socket.setsockopt(zmq.MAXMSGSIZE, endpoint.message_bytes_max)
        self.socket.setsockopt(zmq.IPV6, 1)
        for prefix in subscribe:
            self.socket.setsockopt(zmq.SUBSCRIBE, prefix.encode())
        self._clients: ThreadAuthenticator | None = None
        try:
            self._encrypt(endpoint)
        except BaseException:
            self.close(seconds=0)
            raise
        for address in endpoint.addresses:
            try:
                self.socket.bind(address) if endpoint.bind else self.socket.connect(address)
            except zmq.ZMQError as error:
                self.close(seconds=0)
                raise AddressUnusable(gateway=gateway, address=address, why=error.strerror or str(error)) from error
        self.address = ", ".join(endpoint.addresses)
        if endpoint.bind and len(endpoint.addresses) == 1:  # with the port that was chosen
            self.address = bytes(self.socket.getsockopt(zmq.LAST_ENDPOINT)).decode().rstrip("\x00")

    def _encrypt(self, endpoint: Endpoint) -> None:
        import zmq

        secret = read_secret(env=endpoint.curve_key_env, file=endpoint.curve_key_file)
        if secret is None:
            return
        try:
            self.socket.curve_publickey = zmq.curve_public(secret.encode())
            self.socket.curve_secretkey = secret.encode()
            if endpoint.bind:
                self.socket.curve_server = True
                self._admit(endpoint.curve_clients)
            else:
                self.socket.curve_serverkey = endpoint.curve_server_key.encode()
        except (zmq.ZMQError, ValueError) as error:  # neither says what the key was
            expected = f"{KEY_CHARACTERS} characters, as `zmq.curve_keypair()` makes them"
            raise ArgumentInvalid(name="the key of CURVE", value="hidden", expected=expected) from error

    def _admit(self, clients: tuple[str, ...]) -> None:
        """Let only these clients connect, if there are any."""
        if not clients:
            return
        from zmq.auth.thread import ThreadAuthenticator

        self._clients = ThreadAuthenticator(self._context)
        self._clients.start()
        self._clients.configure_curve_callback(credentials_provider=_Clients(clients))

    def received(self, *, seconds: float, count_max: int) -> Iterator[list[bytes]]:
        """The messages that have come, each with its frames; wait so long for the first."""
        import zmq

        if not self.socket.poll(round(seconds * 1_000)):
            return
        with contextlib.suppress(zmq.Again):
            for _ in range(count_max):
                yield self.socket.recv_multipart(zmq.NOBLOCK)

    def send(self, frames: list[bytes], *, seconds: float) -> bool:
        """Send a message; False if there is no room for it within so many seconds."""
        import zmq

        try:
            self.socket.send_multipart(frames, zmq.NOBLOCK)
        except zmq.Again:
            if not self.socket.poll(round(seconds * 1_000), zmq.POLLOUT):
                return False
            return self.send(frames, seconds=0)
        return True

    def close(self, *, seconds: float) -> None:
        """Close; what was sent has so many seconds to leave."""
        if self._clients is not None:
            self._clients.stop()
        self._context.destroy(linger=round(seconds * 1_000))


class _Clients:
    """Tells ZeroMQ whether a client may connect."""

    def __init__(self, keys: tuple[str, ...]) -> None:
        self._keys = frozenset(key.encode() for key in keys)

    def callback(self, domain: str, key: bytes) -> bool:  # noqa: ARG002  # ZeroMQ gives both
        return key in self._keys


# -- positions --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Position:
    """The place of the row that a message was made of: where the row is, its partition and its offset.

    >>> Position.of(Position(source_of("orders", "1"), 3, 17).frame()).offset
    17
    >>> Position.of(b"anything else") is None
    True
    """

    source: bytes
    partition: int
    offset: int

    def frame(self) -> bytes:
        return _POSITION.pack(MAGIC, self.source, self.partition, self.offset)

    @staticmethod
    def of(frame: bytes) -> Position | None:
        """The position in a frame; None if it is another one."""
        if len(frame) != _POSITION.size or not frame.startswith(MAGIC):
            return None
        _, source, partition, offset = _POSITION.unpack(frame)
        return Position(source, partition, offset)

    def __str__(self) -> str:
        return f"{self.source.hex()}/{self.partition}/{self.offset}"


def source_of(topic: str, topic_id: str) -> bytes:
    """Eight bytes that name a topic, and no later one of the same name."""
    return hashlib.blake2b(f"{topic}\n{topic_id}".encode(), digest_size=8).digest()


@dataclass
class Gaps:
    """Tells from the positions of messages how many are missing between them, and which come again.

    What is missing before the first message of a sender is not known.

    >>> gaps = Gaps()
    >>> [gaps.note(Position(b"orders..", 0, offset)) for offset in (7, 8, 11, 11)]
    [(0, False), (0, False), (2, False), (0, True)]
    """

    _next: OrderedDict[tuple[bytes, int], int] = field(default_factory=OrderedDict)

    def note(self, position: Position) -> tuple[int, bool]:
        """How many messages are missing in front of this one, and whether it has come before."""
        place = position.source, position.partition
        expected = self._next.pop(place, position.offset)
        self._next[place] = max(expected, position.offset + 1)
        if len(self._next) > SOURCES_MAX:
            self._next.popitem(last=False)
        return max(0, position.offset - expected), position.offset < expected
