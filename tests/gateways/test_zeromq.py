"""ZeroMQ: what it drops is counted by the positions of the messages, and a slow receiver slows a sender that waits."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import zmq
from hypothesis import given
from hypothesis.strategies import binary, integers, lists, sets

import headwater
from headwater.errors import ArgumentInvalid, NotFound
from headwater.gateways import AddressUnusable, GatewayRunner, ZeroMqIn, ZeroMqOut
from headwater.gateways.kinds import gateway_from_text
from headwater.gateways.zeromq import Gaps, Position
from headwater.gateways.zeromq_in import message_of
from headwater.log import Log
from tests.conditions import until

ANY = ("tcp://127.0.0.1:*",)


@contextmanager
def at_work(log: Log, gateway: ZeroMqIn | ZeroMqOut) -> Iterator[GatewayRunner]:
    runner = GatewayRunner(log, gateway)
    runner.start()
    try:
        yield runner
    finally:
        runner.stop()


@contextmanager
def closing_all(context: zmq.Context[zmq.Socket[bytes]]) -> Iterator[None]:
    try:
        yield
    finally:
        context.destroy(linger=0)


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return headwater.open(tmp_path / "log")


def counts(runner: GatewayRunner) -> dict[str, int]:
    return runner.status().counters


@given(dropped=sets(integers(1, 50)))
def test_what_is_missing_between_two_messages_is_counted_exactly(dropped: set[int]) -> None:
    gaps = Gaps()
    kept = [offset for offset in range(52) if offset not in dropped]
    noted = [gaps.note(Position(b"........", 0, offset)) for offset in kept]
    assert sum(lost for lost, _ in noted) == len(dropped)
    assert not any(again for _, again in noted)
    assert all(again for _, again in [gaps.note(Position(b"........", 0, offset)) for offset in kept])


@given(frames=lists(binary(max_size=30), min_size=1, max_size=5))
def test_no_frame_of_a_message_is_lost(frames: list[bytes]) -> None:
    row = message_of(frames, now_us=0).row
    own = list(row["frames"] or [])  # type: ignore[call-overload]
    subject = [] if row["subject"] is None else [frames[0]]
    assert [*subject, *own, row["payload"]] == frames


def test_settings_come_as_text_and_wrong_ones_are_named(log: Log) -> None:
    made = gateway_from_text("zeromq-in", ["addresses=tcp://a:1, tcp://b:2", "pattern=pull", "bind=true"])
    assert made == ZeroMqIn(addresses=("tcp://a:1", "tcp://b:2"), pattern="pull", bind=True)
    for wrong in ({"addresses": ()}, {"addresses": ANY, "pattern": "push"}, {"addresses": ANY, "high_water_mark": 0}):
        with pytest.raises(ArgumentInvalid):
            ZeroMqIn(**wrong)
    with pytest.raises(NotFound, match="'zeromq'"):
        ZeroMqOut(addresses=ANY).open(log)


def test_with_keys_messages_are_encrypted_and_only_known_clients_are_heard(log: Log, tmp_path: Path) -> None:
    public, secret = (key.decode() for key in zmq.curve_keypair())
    (known, known_secret), (_, other_secret) = zmq.curve_keypair(), zmq.curve_keypair()
    (tmp_path / "key").write_text(f"{secret}\n")
    gateway = ZeroMqIn(
        addresses=ANY, pattern="pull", bind=True, curve_key_file=str(tmp_path / "key"), curve_clients=(known.decode(),)
    )
    context = zmq.Context()
    with at_work(log, gateway) as runner, closing_all(context):
        senders = []
        for key in (b"", other_secret, known_secret):  # without a key, with one that is not known, with one that is
            sender = context.socket(zmq.PUSH)
            sender.immediate = True
            if key:
                sender.curve_publickey, sender.curve_secretkey = zmq.curve_public(key), key
                sender.curve_serverkey = public.encode()
            sender.connect(runner.address)
            senders.append(sender)
        assert senders[-1].poll(30_000, zmq.POLLOUT)
        senders[-1].send(b"hello")
        until(lambda: counts(runner)["appended"] == 1)
        assert not any(sender.poll(100, zmq.POLLOUT) for sender in senders[:-1])
    assert [row["payload"] for row in log.read("zeromq").rows()] == [b"hello"]
    assert secret not in repr(gateway)


def test_rows_reach_a_gateway_of_another_log_through_an_encrypted_connection(
    log: Log, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    public, secret = (key.decode() for key in zmq.curve_keypair())
    monkeypatch.setenv("OUT_KEY", secret)
    monkeypatch.setenv("IN_KEY", zmq.curve_keypair()[1].decode())
    log.create("ticks", "rate double")
    log.append("ticks", [{"rate": 1.5}])
    out = ZeroMqOut(topic="ticks", addresses=ANY, pattern="push", curve_key_env="OUT_KEY")
    with headwater.open(tmp_path / "other") as other, at_work(log, out) as sender:
        taken = ZeroMqIn(addresses=(sender.address,), pattern="pull", curve_key_env="IN_KEY", curve_server_key=public)
        with at_work(other, taken) as receiver:
            until(lambda: counts(receiver)["appended"] == 1)


def test_keys_that_cannot_be_are_named(log: Log, tmp_path: Path) -> None:
    public = zmq.curve_keypair()[0].decode()
    for wrong in (
        {"curve_server_key": "short", "curve_key_env": "KEY"},
        {"curve_key_env": "KEY"},
        {"curve_server_key": public},
        {"curve_server_key": public, "curve_key_env": "KEY", "bind": True},
        {"curve_clients": (public,), "bind": True},
    ):
        with pytest.raises(ArgumentInvalid, match="curve"):
            ZeroMqIn(addresses=ANY, **wrong)
    with pytest.raises(NotFound, match="KEY"):
        ZeroMqIn(addresses=ANY, bind=True, curve_key_env="KEY_THAT_IS_NOT_SET").open(log)
    (tmp_path / "key").write_text("secret")
    with pytest.raises(ArgumentInvalid, match="hidden"):
        ZeroMqIn(addresses=ANY, bind=True, curve_key_file=str(tmp_path / "key")).open(log)


@pytest.mark.parametrize("address", ["tcp://127.0.0.1", "nonsense", "carrier://pigeon", "tcp://203.0.113.7:5555"])
def test_an_address_that_cannot_be_used_is_named(log: Log, address: str) -> None:
    with pytest.raises(AddressUnusable, match=address):
        ZeroMqIn(addresses=(address,), bind=True).open(log)


def test_rows_reach_a_gateway_of_another_log_through_pub_and_sub(log: Log, tmp_path: Path) -> None:
    log.create("ticks", "currency string, rate double")
    publisher = GatewayRunner(log, ZeroMqOut(topic="ticks", template="{currency}", addresses=ANY))
    publisher.start()
    other = headwater.open(tmp_path / "other")
    subscriber = GatewayRunner(other, ZeroMqIn(addresses=(publisher.address,)))
    subscriber.start()

    def first() -> bool:  # PUB drops what it sends before the subscription has arrived
        log.append("ticks", [{"currency": "eur", "rate": 1.0}])
        return counts(subscriber)["appended"] > 0

    until(first)
    log.append("ticks", [{"currency": f"c{number % 7}", "rate": float(number)} for number in range(2_000)])
    end = log.end_offsets("ticks")[0] - 1
    until(lambda: str(end) == _last_offset(other))
    publisher.stop()
    subscriber.stop()
    rows = other.read("zeromq").rows()
    assert [row["payload"] for row in rows[-2_000:]] == [
        b'{"currency":"c%d","rate":%d.0}' % (number % 7, number) for number in range(2_000)
    ]
    assert rows[-1]["subject"] == "c4"
    assert counts(subscriber)["lost"] == 0


def test_what_pub_drops_for_a_slow_subscriber_is_counted_exactly(log: Log, tmp_path: Path) -> None:
    log.create("ticks", "n int64, filler string")
    publisher = GatewayRunner(log, ZeroMqOut(topic="ticks", addresses=ANY, high_water_mark=10))
    publisher.start()
    other = headwater.open(tmp_path / "other")
    session = ZeroMqIn(addresses=(publisher.address,), high_water_mark=10).open(other)
    appended = 0

    def arrived() -> bool:
        nonlocal appended
        log.append("ticks", [{"n": appended, "filler": ""}])
        appended += 1
        session._take(0.01, 10)
        return session.counters.appended > 0

    until(arrived)
    known = int(str(other.read("zeromq").rows()[0]["position"]).rpartition("/")[2])
    log.append("ticks", [{"n": number, "filler": "x" * 4_000} for number in range(5_000)])
    until(lambda: counts(publisher)["appended"] == appended + 5_000)  # what comes is not read meanwhile
    stop = threading.Event()
    reader = threading.Thread(target=session.run, args=(stop,))
    reader.start()

    def last() -> bool:  # what is missing shows with the next message that comes
        nonlocal appended
        log.append("ticks", [{"n": -1, "filler": ""}])
        appended += 1
        return int(_last_offset(other)) >= 5_000 + known

    until(last)
    stop.set()
    reader.join()
    session.close()
    publisher.stop()
    counters = session.counters
    assert counters.lost > 0
    assert counters.appended + counters.lost == int(_last_offset(other)) - known + 1


@pytest.fixture
def pull_socket() -> Iterator[zmq.Socket[bytes]]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    receiver = context.socket(zmq.PULL)
    receiver.set_hwm(5)
    yield receiver
    context.destroy(0)


def test_a_receiver_that_is_slow_slows_a_sender_that_pushes(log: Log, pull_socket: zmq.Socket[bytes]) -> None:
    log.create("jobs", "n int64, filler string")
    log.append("jobs", [{"n": number, "filler": "x" * 10_000} for number in range(3_000)])
    port = pull_socket.bind_to_random_port("tcp://127.0.0.1")
    sender = GatewayRunner(
        log,
        ZeroMqOut(
            topic="jobs",
            pattern="push",
            bind=False,
            addresses=(f"tcp://127.0.0.1:{port}",),
            high_water_mark=5,
        ),
    )
    sender.start()
    until(lambda: counts(sender)["appended"] > 5)
    assert counts(sender)["appended"] < 3_000  # it waits: 30 MB fit into no queue
    taken = [pull_socket.recv_multipart() for _ in range(3_000)]
    until(lambda: log.committed("zeromq-out-jobs", "jobs") == {0: 3_000})
    sender.stop()
    assert [Position.of(frames[1]).offset for frames in taken] == list(range(3_000))  # type: ignore[union-attr]


def test_a_sender_without_a_receiver_waits_and_stops_when_it_is_told_to(log: Log) -> None:
    log.create("jobs", "n int64")
    log.append("jobs", [{"n": 1}])
    sender = GatewayRunner(log, ZeroMqOut(topic="jobs", pattern="push", addresses=ANY, linger="0 seconds"))
    sender.start()
    until(lambda: counts(sender)["received"] == 1)
    sender.stop()
    assert log.committed("zeromq-out-jobs", "jobs") == {}
    assert counts(sender)["appended"] == 0


def test_messages_of_other_programs_are_columns_or_dead_letters(log: Log) -> None:
    log.create("states", "device string not null, value double")
    gateway = GatewayRunner(log, ZeroMqIn(topic="states", pattern="pull", bind=True, addresses=ANY))
    gateway.start()
    context = zmq.Context()
    sender = context.socket(zmq.PUSH)
    sender.connect(gateway.address)
    for frames in ([b'{"device": "d1", "value": 2}'], [b"s", b"junk"], [b"s", b'{"value": 2}'], [b""]):
        sender.send_multipart(frames)
    until(lambda: counts(gateway)["received"] == 4)
    gateway.stop()
    sender.close(0)
    context.term()
    assert [row["device"] for row in log.read("states").rows()] == ["d1"]
    assert [row["value"] for row in log.read("states.dlq").rows()] == [b"junk", b'{"value": 2}', b""]
    assert (counts(gateway)["appended"], counts(gateway)["rejected"]) == (1, 3)


def _last_offset(log: Log) -> str:
    rows = log.read("zeromq", columns=["position"]).rows()
    return str(rows[-1]["position"]).rpartition("/")[2] if rows else "-1"
