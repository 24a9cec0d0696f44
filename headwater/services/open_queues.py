"""The queues that a process has open for the callers of its services: opened on first use, and closed when they are deleted."""

from __future__ import annotations

import contextlib
import threading
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

from headwater.errors import NotFound, did_you_mean
from headwater.log import Log
from headwater.queues import Queue, QueueConfig
from headwater.queues.config import Settings
from headwater.queues.queue import open_queue

#: Groups of queues that stay open; the one not used for longest is closed.
OPEN_MAX = 256


@dataclass(eq=False)
class _Opened:
    queue: Queue
    topic_id: str
    uses: int = 0


class OpenQueues:
    """One open queue for each group in use. The settings of queues are read again when any process has changed them."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._settings = Settings(log)
        self._is_read = False
        self._configs: dict[str, QueueConfig] = {}
        self._groups: set[tuple[str, str]] = set()
        self._opened: OrderedDict[tuple[str, str], _Opened] = OrderedDict()
        self._ended: list[_Opened] = []

    def configs(self) -> dict[str, QueueConfig]:
        """The settings of all queues, by their names."""
        with self._lock:
            self._refresh()
            return dict(sorted(self._configs.items()))

    def config(self, name: str) -> QueueConfig:
        known = self.configs()
        if name not in known:
            raise NotFound(kind="queue", name=name, near=did_you_mean(name, known))
        return known[name]

    def groups(self, name: str) -> list[str]:
        with self._lock:
            self._refresh()
            return sorted(group for queue, group in self._groups if queue == name)

    @contextlib.contextmanager
    def use(self, name: str, group: str, *, create_group: bool = False) -> Iterator[Queue]:
        """A queue as one of its groups, while the block runs. Only `create_group` makes a group that does not exist."""
        self.config(name)
        if not create_group and (name, group) not in self._groups:
            raise NotFound(kind="queue group", name=group, near=did_you_mean(group, self.groups(name)))
        with self._lock:
            opened = self._open(name, group)
            opened.uses += 1
        try:
            yield opened.queue
        finally:
            with self._lock:
                opened.uses -= 1
                self._end()

    def close(self) -> None:
        with self._lock:
            self._ended += self._opened.values()
            self._opened.clear()
            self._end()

    # -- inside, under the lock ---------------------------------------------------------------------------------------

    def _refresh(self) -> None:
        if self._is_read and not self._settings.has_changed():
            return
        queues, groups = self._settings.together("queue", "group")
        self._configs = {name: QueueConfig(**value) for name, value in queues.items()}
        self._groups = {(name.rpartition("/")[0], name.rpartition("/")[2]) for name in groups}
        self._is_read = bool(self._configs)
        for key, opened in list(self._opened.items()):
            config = self._configs.get(key[0])
            if config is None or key not in self._groups or self._topic_id(key[0]) != opened.topic_id:
                self._ended.append(self._opened.pop(key))
            elif opened.queue.config != config:
                opened.queue.apply(config)
        self._end()

    def _topic_id(self, name: str) -> str:
        try:
            return self._log.topic(name).id
        except NotFound:
            return ""

    def _open(self, name: str, group: str) -> _Opened:
        opened = self._opened.get((name, group))
        if opened is None:
            queue = open_queue(self._log, name, group=group, create=False)
            opened = self._opened[name, group] = _Opened(queue, self._log.topic(name).id)
            if len(self._opened) > OPEN_MAX:
                self._ended.append(self._opened.popitem(last=False)[1])
        self._opened.move_to_end((name, group))
        return opened

    def _end(self) -> None:
        """Close what is not used any more."""
        for opened in [each for each in self._ended if not each.uses]:
            self._ended.remove(opened)
            opened.queue.close()
