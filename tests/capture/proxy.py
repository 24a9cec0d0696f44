"""A TCP proxy on loopback that cuts the connections of a database's clients, or hides that a client is dead."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator


class Proxy:
    """Passes bytes between clients and one port, until it is told to cut.

    A client that ends while the proxy `holds` is not reported to the server, as when its machine loses power: the server
    believes in the connection, and with it in a replication slot, until its own time limit, or until `forget`.
    """

    def __init__(self, target_port: int) -> None:
        self.target_port = target_port
        self.connections = 0
        self.holds = False
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._held: list[socket.socket] = []
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> int:
        """Close all connections, to clients and to the server; return how many there were."""
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for one in pair:
                _close(one)
        return len(pairs)

    @property
    def held(self) -> int:
        """How many connections the server believes in although their clients are gone."""
        return len(self._held)

    def forget(self) -> None:
        """Close the connections whose clients ended while the proxy held."""
        with self._lock:
            held, self._held = self._held, []
        for one in held:
            _close(one)

    def close(self) -> None:
        self._listener.close()
        self.cut()
        self.forget()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # the listener is closed
                return
            try:
                server = socket.create_connection(("127.0.0.1", self.target_port), timeout=5)
            except OSError:  # the server is down: its clients see that
                _close(client)
                continue
            server.settimeout(None)
            for one in (client, server):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._pairs.append((client, server))
                self.connections += 1
            threading.Thread(target=self._pass, args=(client, server, True), daemon=True).start()
            threading.Thread(target=self._pass, args=(server, client, False), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, is_client: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                target.sendall(data)
        client, server = (source, target) if is_client else (target, source)
        with self._lock:
            if (client, server) not in self._pairs:  # closed already, by `cut` or the other direction
                return
            self._pairs.remove((client, server))
            if self.holds:
                self._held.append(server)
        _close(client)
        if not self.holds:
            _close(server)


def _close(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()


@contextlib.contextmanager
def proxy_to(port: int) -> Iterator[Proxy]:
    """A proxy to a port of this machine."""
    proxy = Proxy(port)
    try:
        yield proxy
    finally:
        proxy.close()
