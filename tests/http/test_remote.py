"""Programs over the network: producers, consumers and groups on the remote adapter, and servers that die."""

from __future__ import annotations

import pickle
import threading
from pathlib import Path

import pytest

from headwater.errors import Closed
from headwater.http import Address, Settings, Tokens, served
from headwater.log import Limit, Log
from headwater.log import open as open_log
from headwater.log.errors import MemberFenced, ServerUnreachable
from headwater.log.remote import RemoteLog
from headwater.services.callers import ScopeMissing
from headwater.services.tokens import TokenInvalid
from tests.http.process import server_process


def ids(batches: list[object]) -> list[int]:
    return [row["id"] for batch in batches for row in batch.rows()]  # type: ignore[attr-defined]


def test_a_producer_sends_in_the_background_and_none_is_doubled(log: Log, remote: Log) -> None:
    log.create("t", "id int64", partitions=3)
    with remote.producer("t", name="loader") as producer:
        for number in range(1_000):
            producer.send({"id": number})
    assert sorted(row["id"] for row in log.read("t").rows()) == list(range(1_000))
    with remote.producer("t", name="loader") as again:
        again.send({"id": 1_000})
    assert log.read("t").count() == 1_001


def test_a_consumer_reads_on_as_rows_come(log: Log, remote: Log) -> None:
    log.create("t", "id int64", partitions=2)
    log.append("t", [{"id": number} for number in range(5)], partition=0)
    with remote.consumer("t") as consumer:
        assert ids(list(consumer.poll(seconds=30))) == list(range(5))
        threading.Thread(target=lambda: log.append("t", [{"id": 5}], partition=1)).start()
        assert ids(list(consumer.poll(seconds=30))) == [5]
        assert consumer.poll(seconds=0) == []


def test_a_consumer_sees_each_punctuation_once(log: Log, remote: Log) -> None:
    log.create("t", "id int64")
    with remote.consumer("t") as consumer:
        log.append("t", [{"id": 1}])
        assert ids(list(consumer.poll(seconds=30))) == [1]
        log.punctuate("t", 1_000)
        assert [batch.punctuation_us for batch in consumer.poll(seconds=30)] == [1_000]
        log.append("t", [{"id": 2}])
        assert ids(list(consumer.poll(seconds=30))) == [2]


def test_new_topics_of_a_pattern_are_noticed(log: Log, remote: Log) -> None:
    log.create("shop.a", "id int64")
    with remote.consumer("shop.*", "g") as consumer:
        assert consumer.poll(seconds=0) == []
        log.create("shop.b", "id int64")
        log.append("shop.b", [{"id": 1}])
        assert ids(list(consumer.poll(seconds=30))) == [1]


def test_members_here_and_elsewhere_share_the_partitions(log: Log, address: str) -> None:
    log.create("t", "id int64", partitions=4)
    with open_log(address) as first, open_log(address) as second:
        a = first.consumer("t", "g", heartbeat_seconds=0.05)
        assert sum(map(len, a.assignment.values())) == 4
        b = second.consumer("t", "g", heartbeat_seconds=0.05)
        c = log.consumer("t", "g", heartbeat_seconds=0.05)
        members = [a, b, c]
        seen: list[int] = []
        for number in range(200):
            log.append("t", [{"id": number}])
            for member in members:
                seen += ids(list(member.poll(seconds=0.01)))
            if sorted(sum(map(len, member.assignment.values())) for member in members) == [1, 1, 2]:
                break
        assert sorted(sum(map(len, member.assignment.values())) for member in members) == [1, 1, 2]
        owned = [(topic, number) for member in members for topic, all in member.assignment.items() for number in all]
        assert len(set(owned)) == len(owned) == 4
        for member in members:
            member.close()
    assert log.groups.describe("g").members == []


def test_a_group_goes_on_where_it_was_whoever_reads_for_it(log: Log, remote: Log) -> None:
    log.create("t", "id int64")
    log.append("t", [{"id": number} for number in range(10)])
    with remote.consumer("t", "g", rows_max=4) as consumer:
        assert ids(list(consumer.poll())) == [0, 1, 2, 3]
    assert remote.groups.lag("g")[0].rows == 6
    with log.consumer("t", "g") as consumer:
        assert ids(list(consumer.poll())) == [4, 5, 6, 7, 8, 9]
    remote.groups.seek("g", "t", 2)
    with remote.consumer("t", "g") as consumer:
        assert ids(list(consumer.poll())) == list(range(2, 10))


def test_a_group_begins_at_the_end_where_that_was_asked_for(log: Log, remote: Log) -> None:
    log.create("t", "id int64")
    log.append("t", [{"id": 1}])
    with remote.consumer("t", "g", start="latest") as consumer:
        log.append("t", [{"id": 2}])
        assert ids(list(consumer.poll(seconds=30))) == [2]


def test_a_member_whose_name_another_has_taken_cannot_commit(log: Log, remote: Log) -> None:
    log.create("t", "id int64")
    log.append("t", [{"id": 1}])
    zombie = remote.consumer("t", "g", member="worker-1", auto_commit=False, heartbeat_in_background=False)
    assert ids(list(zombie.poll())) == [1]
    with remote.consumer("t", "g", member="worker-1", auto_commit=False) as successor:
        with pytest.raises(MemberFenced):
            zombie.commit()
        assert log.committed("g", "t") == {}
        assert ids(list(successor.poll(seconds=30))) == [1]
        successor.commit()
    assert log.committed("g", "t") == {0: 1}


def test_a_producer_waits_for_a_slow_group(log: Log, remote: Log) -> None:
    log.create("t", "id int64")
    with remote.producer("t", limit=Limit(rows=10, group="slow"), linger_seconds=0) as producer:

        def send() -> None:
            for number in range(30):
                producer.send({"id": number})

        sender = threading.Thread(target=send)
        sender.start()
        with log.consumer("t", "slow", auto_commit_seconds=0) as consumer:
            seen: list[int] = []
            while len(seen) < 30:
                assert log.groups.lag("slow")[0].rows <= 20
                seen += ids(list(consumer.poll(seconds=30)))
        sender.join(30)
    assert seen == list(range(30))


def test_a_topic_created_again_is_read_from_its_beginning(log: Log, remote: Log) -> None:
    log.create("t", "id int64")
    log.append("t", [{"id": number} for number in range(5)])
    with remote.consumer("t*") as consumer:
        assert len(ids(list(consumer.poll()))) == 5
        log.delete("t")
        log.create("t", "id int64")
        log.append("t", [{"id": 7}])
        seen: list[int] = []
        while not seen:
            seen = ids(list(consumer.poll(seconds=0.1)))
        assert seen == [7]


def test_rows_follow_a_schema_that_somebody_else_has_changed(log: Log, remote: Log) -> None:
    log.create("t", "id int64")
    remote.append("t", [{"id": 1}])
    log.alter("t", schema="id int64, note string")
    remote.append("t", [{"id": 2, "note": "x"}])
    assert remote.read("t", columns=["id", "note"]).rows() == [{"id": 1, "note": None}, {"id": 2, "note": "x"}]
    log.delete("t")
    log.create("t", "other string")
    remote.append("t", [{"other": "y"}])
    assert remote.read("t", columns=["other"]).rows() == [{"other": "y"}]


def test_a_large_read_comes_in_pages(log: Log) -> None:
    log.create("t", "id int64, text string")
    for start in range(0, 5_000, 500):
        log.append("t", [{"id": number, "text": "x" * 100} for number in range(start, start + 500)])
    with (
        served(log, Address(port=0), settings=Settings(answer_bytes_max=50_000)) as address,
        open_log(address) as remote,
    ):
        assert [row["id"] for row in remote.read("t", columns=["id"]).rows()] == list(range(5_000))
        assert [row["id"] for row in remote.read("t", start=3_000, limit=1_200).rows()] == list(range(3_000, 4_200))


def test_tokens_go_along_and_errors_come_back(log: Log, tokens: Tokens) -> None:
    log.create("t", "id int64")
    reader = tokens.create("reader", ["read:t"])
    with served(log, Address(port=0)) as address:
        with open_log(address, token=reader) as remote:
            assert remote.read("t").count() == 0
            with pytest.raises(ScopeMissing):
                remote.append("t", [{"id": 1}])
        with open_log(address, token="hw_x_y") as remote, pytest.raises(TokenInvalid):
            remote.topics()


def test_a_log_crosses_a_process_border_as_its_address(log: Log, remote: Log) -> None:
    log.create("t", "id int64")
    with pickle.loads(pickle.dumps(remote)) as other:
        assert isinstance(other, RemoteLog)
        assert other.topics() == ["t"]


@pytest.mark.usefixtures("quick_retries")
def test_a_server_that_is_not_there_is_said_in_one_sentence() -> None:
    with open_log("http://127.0.0.1:9") as remote, pytest.raises(ServerUnreachable, match=r"127\.0\.0\.1:9"):
        remote.topics()
    with pytest.raises(Closed):
        remote.topics()


@pytest.mark.core
@pytest.mark.process
@pytest.mark.usefixtures("quick_retries")
def test_what_was_acknowledged_survives_a_killed_server(tmp_path: Path) -> None:
    with server_process() as process:
        address = process.serve(tmp_path / "log")
        with open_log(address) as remote:
            remote.create("t", "id int64")
            open_transaction = remote.transaction()
            open_transaction.append("t", [{"id": 99}])
            prepared = remote.transaction()
            prepared.append("t", [{"id": 100}])
            identity = prepared.prepare()
            for number in range(20):
                remote.append("t", [{"id": number}])
            process.kill()
            with pytest.raises(ServerUnreachable):
                remote.append("t", [{"id": 20}])
    with open_log(tmp_path / "log") as log, served(log, Address(port=0)) as address, open_log(address) as remote:
        assert [row["id"] for row in remote.read("t").rows()] == list(range(20))
        assert remote.prepared() == [identity]
        remote.commit(identity)
        assert remote.read("t").count() == 21


@pytest.mark.usefixtures("quick_retries")
def test_a_consumer_goes_on_when_its_server_comes_back(tmp_path: Path) -> None:
    from benchmarks.peer_servers import free_port

    port = free_port()
    with open_log(tmp_path / "log") as log:
        log.create("t", "id int64")
        log.append("t", [{"id": 1}])
        with open_log(f"http://127.0.0.1:{port}") as remote:
            with served(log, Address(port=port)):
                consumer = remote.consumer("t", "g", heartbeat_in_background=False)
                assert ids(list(consumer.poll(seconds=30))) == [1]
                consumer.commit()
            with pytest.raises(ServerUnreachable):
                consumer.poll(seconds=0.5)
            log.append("t", [{"id": 2}])
            with served(log, Address(port=port)):
                seen: list[int] = []
                while not seen:
                    try:
                        seen = ids(list(consumer.poll(seconds=0.1)))
                    except MemberFenced:
                        continue  # the new server gives it another place
                assert seen == [2]
                consumer.close()


def test_no_partition_and_no_offset_mean_what_they_mean_for_a_folder(log: Log, remote: Log) -> None:
    log.create("t", "id int64", partitions=2)
    log.append("t", [{"id": number} for number in range(4)], partition=1)
    for one in (log, remote):
        assert one.read("t", partitions=[]).rows() == []
        assert [row["id"] for row in one.read("t", start={}).rows()] == [0, 1, 2, 3]
        assert one.read("t", stop={}).rows() == []
        assert [row["id"] for row in one.read("t", start={1: 3}, partitions=[1]).rows()] == [3]
