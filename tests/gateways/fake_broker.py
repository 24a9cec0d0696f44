"""An MQTT broker in a thread that notes what a client sends, for tests of the order of acknowledgements."""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

CONNECT, CONNACK, PUBLISH, PUBACK, SUBSCRIBE, SUBACK, DISCONNECT = 1, 2, 3, 4, 8, 9, 14


@dataclass
class FakeBroker:
    """Takes one connection after the other; `knows` are the protocol levels that it accepts."""

    knows: tuple[int, ...] = (4, 5)
    #: Messages for a subscriber: the topic, the payload, the first byte.
    messages: list[tuple[str, bytes, int]] = field(default_factory=list)
    #: Called with the id of each message that a client acknowledges.
    on_ack: Callable[[int], None] = lambda _id: None
    #: The reason with which each message of a publisher is answered.
    reason: Callable[[str, bytes], int] = lambda _topic, _payload: 0
    #: From the message with this number on it answers nothing, and closes the connection.
    silent_from: int | None = None
    #: The reason with which it refuses a connection of MQTT 5.
    refusal: int = 0
    #: The largest packet that it takes, with MQTT 5.
    packet_bytes_max: int | None = None
    #: What makes a socket one of TLS.
    secure: ssl.SSLContext | None = None
    connects: list[bytes] = field(default_factory=list)
    published: list[tuple[str, bytes]] = field(default_factory=list)
    levels: list[int] = field(default_factory=list)

    def __enter__(self) -> FakeBroker:
        scheme = "mqtt" if self.secure is None else "mqtts"
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"{scheme}://127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(10)

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            if self.secure is not None:
                try:
                    connection = self.secure.wrap_socket(connection, server_side=True)
                except OSError:  # the client trusts no such certificate
                    continue
            with connection, connection.makefile("rwb") as stream:
                while (packet := _packet(stream.read)) is not None and self._goes_on(*packet, stream.write):
                    stream.flush()
                stream.flush()

    def _goes_on(self, first: int, body: bytes, write: Callable[[bytes], object]) -> bool:
        kind = first >> 4
        if kind == CONNECT:
            level = body[6]
            self.connects.append(body)
            self.levels.append(level)
            if level not in self.knows:
                write(bytes([CONNACK << 4, 2, 0, 1]))  # as a broker that knows only MQTT 3 says
                return False
            limits = b"" if self.packet_bytes_max is None else struct.pack("!BI", 0x27, self.packet_bytes_max)
            answer = bytes([0, self.refusal, len(limits)]) + limits if level == 5 else bytes(2)
            write(bytes([CONNACK << 4, len(answer)]) + answer)
        elif kind == SUBSCRIBE:
            properties = b"\x00" if self.levels[-1] == 5 else b""
            answer = body[:2] + properties + b"\x01"
            write(bytes([SUBACK << 4, len(answer)]) + answer)
            for number, (topic, payload, head) in enumerate(self.messages, start=1):
                name = topic.encode()
                content = struct.pack("!H", len(name)) + name + struct.pack("!H", number) + properties + payload
                write(bytes([head, len(content)]) + content)
        elif kind == PUBLISH:
            length = struct.unpack("!H", body[:2])[0]
            topic, id = body[2 : 2 + length].decode(), body[2 + length : 4 + length]
            rest = body[4 + length :]
            payload = rest[1 + rest[0] :] if self.levels[-1] == 5 else rest
            if len(self.published) == self.silent_from:
                return False
            self.published.append((topic, payload))
            reason = self.reason(topic, payload)
            write(bytes([PUBACK << 4, 3, *id, reason] if reason else [PUBACK << 4, 2, *id]))
        elif kind == PUBACK:
            self.on_ack(struct.unpack("!H", body[:2])[0])
        return kind != DISCONNECT


def _packet(read: Callable[[int], bytes]) -> tuple[int, bytes] | None:
    try:
        first = read(1)
        size, shift = 0, 0
        while first:
            byte = read(1)
            if not byte:
                return None
            size |= (byte[0] & 127) << shift
            shift += 7
            if byte[0] < 128:
                return first[0], read(size)
    except OSError:
        pass
    return None
