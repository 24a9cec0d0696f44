"""A persistence module of the library `eventsourcing`: its applications keep their events in a log.

`PERSISTENCE_MODULE=headwater.sourcing.persistence` and `HEADWATER_LOG=FOLDER` are all that an application needs. Events are
rows of the topic `NAME.stored_events`, with the application's name in lower case, and snapshots of `NAME.stored_snapshots`.
"""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Sequence
from typing import Any, TypeVar
from uuid import UUID

from eventsourcing.persistence import (
    AggregateRecorder,
    ApplicationRecorder,
    InfrastructureFactory,
    IntegrityError,
    Notification,
    ProcessRecorder,
    Recorder,
    StoredEvent,
    Subscription,
    Tracking,
    TrackingRecorder,
)
from eventsourcing.utils import Environment, EnvType, resolve_topic

from headwater.log import open as open_log
from headwater.sourcing.stored_events import Stored, StoredEvents

#: Notifications that a subscription reads at once, and how long it takes to notice `stop`.
_NOTIFICATIONS = 500
_WAIT_SECONDS = 0.2


class HeadwaterRecorder(Recorder):
    """What all recorders share: the events, and how ids of originators are written."""

    def __init__(self, events: StoredEvents, *, originator_id_type: str = "uuid") -> None:
        self.events = events
        self._is_uuid = originator_id_type == "uuid"

    def _insert(self, stored_events: Sequence[StoredEvent], tracking: Tracking | None = None) -> list[int]:
        rows = [
            Stored(str(each.originator_id), each.originator_version, each.topic, each.state) for each in stored_events
        ]
        position = None if tracking is None else (tracking.application_name, tracking.notification_id)
        try:
            return self.events.insert(rows, position)
        except sqlite3.IntegrityError as error:
            raise IntegrityError(str(error)) from error

    def _id(self, row: Stored) -> UUID | str:
        return UUID(row.originator) if self._is_uuid else row.originator


class HeadwaterAggregateRecorder(HeadwaterRecorder, AggregateRecorder):
    """Events by aggregate."""

    # Any: the library's own signature.
    def insert_events(self, stored_events: Sequence[StoredEvent], **kwargs: Any) -> Sequence[int] | None:
        self._insert(stored_events, kwargs.get("tracking"))
        return None

    def select_events(
        self,
        originator_id: UUID | str,
        *,
        gt: int | None = None,
        lte: int | None = None,
        desc: bool = False,
        limit: int | None = None,
    ) -> Sequence[StoredEvent]:
        rows = self.events.of_originator(str(originator_id), after=gt, up_to=lte, descending=desc, limit=limit)
        return [StoredEvent(self._id(row), row.version, row.event, row.state) for row in rows]


class HeadwaterApplicationRecorder(HeadwaterAggregateRecorder, ApplicationRecorder):
    """Events by aggregate, and all of them in one sequence."""

    # Any: the library's own signature.
    def insert_events(self, stored_events: Sequence[StoredEvent], **kwargs: Any) -> Sequence[int] | None:
        return self._insert(stored_events, kwargs.get("tracking"))

    def select_notifications(
        self,
        start: int | None,
        limit: int,
        stop: int | None = None,
        topics: Sequence[str] = (),
        *,
        inclusive_of_start: bool = True,
    ) -> Sequence[Notification]:
        first = 0 if start is None else start if inclusive_of_start else start + 1
        rows = self.events.numbered(start=first, stop=stop, events=topics, limit=limit)
        return [
            Notification(
                id=row.number,
                originator_id=self._id(row),
                originator_version=row.version,
                topic=row.event,
                state=row.state,
            )
            for row in rows
        ]

    def max_notification_id(self) -> int | None:
        return self.events.last_number()

    def subscribe(self, gt: int | None = None, topics: Sequence[str] = ()) -> Subscription[ApplicationRecorder]:
        return HeadwaterSubscription(self, gt, topics)


class HeadwaterSubscription(Subscription[HeadwaterApplicationRecorder]):
    """Notifications as they come, also those of other processes."""

    def __init__(
        self, recorder: HeadwaterApplicationRecorder, gt: int | None = None, topics: Sequence[str] = ()
    ) -> None:
        super().__init__(recorder, gt, topics)
        self._ready: deque[Notification] = deque()

    def __next__(self) -> Notification:
        while not self._has_been_stopped:
            if self._ready:
                notification = self._ready.popleft()
                self._last_notification_id = notification.id
                return notification
            self._ready.extend(
                self._recorder.select_notifications(
                    self._last_notification_id, _NOTIFICATIONS, topics=self._topics, inclusive_of_start=False
                )
            )
            if not self._ready:
                self._recorder.events.wait(seconds=_WAIT_SECONDS)
        raise StopIteration


class HeadwaterTrackingRecorder(HeadwaterRecorder, TrackingRecorder):
    """Positions of applications that are followed."""

    def insert_tracking(self, tracking: Tracking) -> None:
        self._insert([], tracking)

    def max_tracking_id(self, application_name: str) -> int | None:
        return self.events.position(application_name)


class HeadwaterProcessRecorder(HeadwaterTrackingRecorder, HeadwaterApplicationRecorder, ProcessRecorder):
    """Events, and with them the position of the event that they follow from."""


_Chosen = TypeVar("_Chosen", bound=HeadwaterRecorder)


class HeadwaterFactory(InfrastructureFactory[HeadwaterTrackingRecorder]):
    """Makes the recorders of an application."""

    HEADWATER_LOG = "HEADWATER_LOG"
    ORIGINATOR_ID_TYPE = "ORIGINATOR_ID_TYPE"

    def __init__(self, env: Environment | EnvType | None) -> None:
        super().__init__(env)
        folder = self.env.get(self.HEADWATER_LOG)
        if not folder:
            keys = ", ".join(self.env.create_keys(self.HEADWATER_LOG))
            raise OSError(f"The folder of a log is not in the environment. Set one of: {keys}.")
        self._id_type = self.env.get(self.ORIGINATOR_ID_TYPE, "uuid").lower()
        if self._id_type not in ("uuid", "text"):
            raise OSError(f"{self.ORIGINATOR_ID_TYPE} is {self._id_type!r}. Set it to 'uuid' or 'text'.")
        self._log = open_log(folder)
        self._sequences: dict[str, StoredEvents] = {}

    def _stored(self, purpose: str) -> StoredEvents:
        topic = f"stored_{purpose}" if not self.env.name else f"{self.env.name.lower()}.stored_{purpose}"
        if topic not in self._sequences:
            self._sequences[topic] = StoredEvents(self._log, topic)
        return self._sequences[topic]

    def aggregate_recorder(self, purpose: str = "events") -> AggregateRecorder:
        return HeadwaterAggregateRecorder(self._stored(purpose), originator_id_type=self._id_type)

    def application_recorder(self) -> ApplicationRecorder:
        chosen = self._class(self.APPLICATION_RECORDER_TOPIC, HeadwaterApplicationRecorder)
        return chosen(self._stored("events"), originator_id_type=self._id_type)

    def tracking_recorder(
        self, tracking_recorder_class: type[HeadwaterTrackingRecorder] | None = None
    ) -> HeadwaterTrackingRecorder:
        chosen = tracking_recorder_class or self._class(self.TRACKING_RECORDER_TOPIC, HeadwaterTrackingRecorder)
        return chosen(self._stored("events"), originator_id_type=self._id_type)

    def process_recorder(self) -> ProcessRecorder:
        chosen = self._class(self.PROCESS_RECORDER_TOPIC, HeadwaterProcessRecorder)
        return chosen(self._stored("events"), originator_id_type=self._id_type)

    def _class(self, setting: str, default: type[_Chosen]) -> type[_Chosen]:
        topic = self.env.get(setting)
        chosen: type[_Chosen] = resolve_topic(topic) if topic else default
        return chosen

    def close(self) -> None:
        for events in self._sequences.values():
            events.close()
        self._log.close()
