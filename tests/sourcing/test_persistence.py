"""The persistence module of the library `eventsourcing`: its own cases for recorders and factories, and what they leave out."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import ClassVar
from uuid import UUID, uuid4

import eventsourcing.cryptography
import pytest
from eventsourcing.application import Application
from eventsourcing.domain import Aggregate, event
from eventsourcing.persistence import IntegrityError, StoredEvent, Tracking
from eventsourcing.utils import Environment

import headwater as hw
from headwater.sourcing.persistence import (
    HeadwaterAggregateRecorder,
    HeadwaterApplicationRecorder,
    HeadwaterFactory,
    HeadwaterProcessRecorder,
    HeadwaterTrackingRecorder,
)
from headwater.sourcing.stored_events import StoredEvents

# The cases import a cipher from a package that nothing else here needs; the library has the same one without it.
sys.modules.setdefault("eventsourcing.cipher", eventsourcing.cryptography)
from eventsourcing.tests import persistence as cases  # noqa: E402


def stored_events(folder: str | Path | None = None) -> StoredEvents:
    return StoredEvents(hw.open(folder or tempfile.mkdtemp()), "stored_events")


class TestAggregateRecorder(cases.AggregateRecorderTestCase):
    def create_recorder(self) -> HeadwaterAggregateRecorder:
        return HeadwaterAggregateRecorder(stored_events())


class TestApplicationRecorder(cases.ApplicationRecorderTestCase[HeadwaterApplicationRecorder]):
    def create_recorder(self) -> HeadwaterApplicationRecorder:
        return HeadwaterApplicationRecorder(stored_events())

    def test_insert_subscribe(self) -> None:
        self.optional_test_insert_subscribe()


class TestTrackingRecorder(cases.TrackingRecorderTestCase):
    def create_recorder(self) -> HeadwaterTrackingRecorder:
        return HeadwaterTrackingRecorder(stored_events())


class TestProcessRecorder(cases.ProcessRecorderTestCase):
    def create_recorder(self) -> HeadwaterProcessRecorder:
        return HeadwaterProcessRecorder(stored_events())


class TestNotificationIds(cases.NonInterleavingNotificationIDsBaseCase):
    def create_recorder(self) -> HeadwaterApplicationRecorder:
        return HeadwaterApplicationRecorder(stored_events())


class OtherTrackingRecorder(HeadwaterTrackingRecorder):
    """A recorder of a user."""


class TestFactory(cases.InfrastructureFactoryTestCase[HeadwaterFactory]):
    def setUp(self) -> None:
        self.env = Environment("Bank", environment(tempfile.mkdtemp()))
        super().setUp()

    def expected_factory_class(self) -> type[HeadwaterFactory]:
        return HeadwaterFactory

    def expected_aggregate_recorder_class(self) -> type[HeadwaterAggregateRecorder]:
        return HeadwaterAggregateRecorder

    def expected_application_recorder_class(self) -> type[HeadwaterApplicationRecorder]:
        return HeadwaterApplicationRecorder

    def expected_tracking_recorder_class(self) -> type[HeadwaterTrackingRecorder]:
        return HeadwaterTrackingRecorder

    def tracking_recorder_subclass(self) -> type[HeadwaterTrackingRecorder]:
        return OtherTrackingRecorder

    def expected_process_recorder_class(self) -> type[HeadwaterProcessRecorder]:
        return HeadwaterProcessRecorder


class Account(Aggregate):
    @event("Opened")
    def __init__(self) -> None:
        self.balance = 0

    @event("Deposited")
    def deposit(self, amount: int) -> None:
        self.balance += amount


class Bank(Application[UUID]):
    snapshotting_intervals: ClassVar = {Account: 2}


def environment(folder: str | Path) -> dict[str, str]:
    return {"PERSISTENCE_MODULE": "headwater.sourcing.persistence", "HEADWATER_LOG": str(folder)}


def test_an_application_keeps_its_events_in_a_log(tmp_path: Path) -> None:
    bank, other = (Bank(environment(tmp_path)) for _ in range(2))
    account = Account()
    account.deposit(5)
    bank.save(account)
    copy: Account = other.repository.get(account.id)
    copy.deposit(2)
    other.save(copy)
    account.deposit(1)
    with pytest.raises(IntegrityError):
        bank.save(account)
    assert [notification.originator_version for notification in bank.recorder.select_notifications(1, 10)] == [1, 2, 3]
    bank.close()
    other.close()
    with hw.open(tmp_path) as log:
        assert log.read("bank.stored_events").count() == 3
        assert log.read("bank.stored_snapshots").count() == 1


def stored(version: int, originator: UUID) -> StoredEvent:
    return StoredEvent(originator_id=originator, originator_version=version, topic="t", state=b"\xff")


def test_an_index_that_is_missing_damaged_or_ahead_is_built_again(tmp_path: Path) -> None:
    originator = uuid4()
    recorder = HeadwaterProcessRecorder(stored_events(tmp_path))
    recorder.insert_events([stored(0, originator)], tracking=Tracking("upstream", 7))
    recorder.insert_events([stored(1, originator)])
    recorder.events.close()
    [index] = (tmp_path / "stored_events").glob("*.sqlite")
    for damage in (index.unlink, lambda: index.write_bytes(b"no database" * 1_000)):
        damage()
        again = HeadwaterProcessRecorder(stored_events(tmp_path))
        assert [each.id for each in again.select_notifications(None, 10)] == [1, 2]
        assert again.max_tracking_id("upstream") == 7
        again.events.close()
    ahead = HeadwaterProcessRecorder(stored_events(tmp_path))
    ahead.events._db.execute("UPDATE meta SET next = 99")
    assert ahead.insert_events([stored(2, originator)]) == [3]
    assert [each.state for each in ahead.select_events(originator)] == [b"\xff"] * 3
    ahead.events.close()


def test_events_that_are_in_the_topic_alone_are_found(tmp_path: Path) -> None:
    originator = uuid4()
    recorder = HeadwaterApplicationRecorder(stored_events(tmp_path))
    recorder.insert_events([stored(0, originator)])
    # As if the program had died before it wrote to the index.
    recorder.events._db.executescript("DELETE FROM events; UPDATE meta SET next = 0;")
    assert recorder.max_notification_id() == 1
    with pytest.raises(IntegrityError):
        recorder.insert_events([stored(0, originator)])
    recorder.events.close()


@pytest.mark.parametrize(
    ("settings", "said"), [({"HEADWATER_LOG": ""}, "HEADWATER_LOG"), ({"ORIGINATOR_ID_TYPE": "number"}, "'number'")]
)
def test_a_factory_says_what_its_environment_lacks(tmp_path: Path, settings: dict[str, str], said: str) -> None:
    with pytest.raises(OSError, match=said):
        HeadwaterFactory(environment(tmp_path) | settings)
