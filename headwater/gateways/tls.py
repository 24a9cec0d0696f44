"""TLS for gateways that listen: the certificate, and connections that are read without waiting for any of them."""

from __future__ import annotations

import selectors
import socket
import ssl
from collections.abc import Callable

from headwater.errors import ArgumentInvalid

#: Records of TLS, each of 16 KiB at most, that are read of one connection in one round.
RECORDS_AT_ONCE = 16
RECORD_BYTES_MAX = 16 * 1024


def server_context(certificate: str, key: str, client_authority: str) -> ssl.SSLContext:
    """The context of a server; with `client_authority`, clients need a certificate of that authority."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    # A client that never reads would have the tickets unread when it closes: the kernel then resets the connection, and what is not
    # read here is lost.
    context.num_tickets = 0
    try:
        context.load_cert_chain(certificate, key)
    except OSError as error:  # that of TLS is one, too
        expected = f"files of a certificate and its `key` in PEM ({error})"
        raise ArgumentInvalid(name="certificate", value=certificate, expected=expected) from error
    if client_authority:
        try:
            context.load_verify_locations(client_authority)
        except OSError as error:
            expected = f"a file of certificates in PEM ({error})"
            raise ArgumentInvalid(name="client_authority", value=client_authority, expected=expected) from error
        context.verify_mode = ssl.CERT_REQUIRED
    return context


class TlsSocket:
    """A connection that was accepted, read without waiting. Its handshake is part of the first reads."""

    def __init__(
        self,
        own: socket.socket,
        context: ssl.SSLContext,
        selector: selectors.BaseSelector,
        *,
        failed: Callable[[OSError], None],
    ) -> None:
        self.socket = context.wrap_socket(own, server_side=True, do_handshake_on_connect=False)
        self.is_open = False
        self._selector = selector
        self._failed = failed

    def receive(self) -> bytes | None:
        """What has come; None if nothing has, and no bytes at the end or after a failure of TLS."""
        found = bytearray()
        try:
            if not self.is_open:
                self.socket.do_handshake()
                self.is_open = True
                self._expect(selectors.EVENT_READ)
            for _ in range(RECORDS_AT_ONCE):
                data = self.socket.recv(RECORD_BYTES_MAX)
                if not data:
                    break
                found += data
        except ssl.SSLWantReadError:
            self._expect(selectors.EVENT_READ)
            return bytes(found) or None
        except ssl.SSLWantWriteError:
            self._expect(selectors.EVENT_WRITE)
            return bytes(found) or None
        except OSError as error:  # of TLS, too: it was reset, or the client speaks no TLS or is not trusted
            if not self.is_open:
                self._failed(error)
            return bytes(found)
        return bytes(found)

    def _expect(self, event: int) -> None:
        key = self._selector.get_key(self.socket)
        if key.events != event:
            self._selector.modify(self.socket, event, key.data)
