"""Run a gateway in a thread until it is stopped; restart it with exponential back-off when it fails."""

from __future__ import annotations

import logging
import threading

from headwater.gateways.port import Counters, Gateway, GatewaySession, GatewayStatus
from headwater.log.port import Log

#: The first pause after a failure, and the longest.
WAIT_SECONDS = 0.5
WAIT_SECONDS_MAX = 30.0
logger = logging.getLogger("headwater.gateways")


class GatewayRunner:
    """One gateway at work: `start`, `stop`, `status`.

    The first `start` raises if the gateway cannot be opened. A later failure is logged, shown in the status, and retried.
    """

    def __init__(self, log: Log, gateway: Gateway) -> None:
        self._log = log
        self.gateway = gateway
        self._stop = threading.Event()
        self._session: GatewaySession | None = None
        self._thread: threading.Thread | None = None
        #: Counts of the sessions that have failed.
        self._before = Counters()
        self._error = ""
        self._failures = 0

    @property
    def address(self) -> str:
        return "" if self._session is None else self._session.address

    def start(self) -> None:
        """Open the gateway, and run it in a thread."""
        if self._thread is not None:
            return
        self._session = self.gateway.open(self._log)
        self._thread = threading.Thread(target=self._run, name=f"headwater-gateway-{self.gateway.name}", daemon=True)
        self._thread.start()

    def request_stop(self) -> None:
        self._stop.set()

    def stop(self) -> None:
        """Stop, and wait until what was received is appended."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def status(self) -> GatewayStatus:
        now = Counters() if self._session is None else self._session.counters
        counts = {name: count + now.to_json()[name] for name, count in self._before.to_json().items()}
        alive = self._thread is not None and self._thread.is_alive()
        state = "stopped" if not alive else "failed" if self._session is None else "running"
        return GatewayStatus(
            name=self.gateway.name,
            kind=self.gateway.kind,
            address=self.address,
            state=state,
            counters=counts,
            error=self._error,
        )

    def _run(self) -> None:
        while True:
            try:
                if self._session is None:
                    self._session = self.gateway.open(self._log)
                self._session.run(self._stop)
                self._session.close()
                return
            except Exception as error:  # of any library: shown, and retried
                self._failed(error)
            if self._stop.wait(min(WAIT_SECONDS * 2 ** min(self._failures - 1, 10), WAIT_SECONDS_MAX)):
                return

    def _failed(self, error: Exception) -> None:
        self._failures += 1
        self._error = " ".join(str(error).split()) or type(error).__name__
        logger.warning("gateway %s: %s", self.gateway.name, self._error)
        session, self._session = self._session, None
        if session is not None:
            self._before.add(**session.counters.to_json())
            session.close()
