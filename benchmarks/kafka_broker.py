"""Apache Kafka on 127.0.0.1: real brokers (KRaft, one process each) from Maven's artifacts, for tests and benchmarks.

The jars are fetched once, by Maven, into a folder of the user's cache. Where neither they nor Maven are there,
`PeerUnavailable` tells why in one line. A broker listens on three ports: one for clients without credentials, who may
do everything; one with SASL, whose users may do what ACLs allow; and one for the controllers.
"""

from __future__ import annotations

import base64
import contextlib
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks.maven import fetched, pom_of
from benchmarks.peer_servers import PeerUnavailable, free_port

RELEASE = "4.3.1"
#: The broker, and what it logs with.
ARTIFACTS = {
    "org.apache.kafka:kafka_2.13": RELEASE,
    "org.apache.logging.log4j:log4j-slf4j-impl": "2.25.4",
}
START_SECONDS_MAX = 60.0
#: The users of the listener with SASL, and their passwords.
USERS = {"ada": "ada's secret", "eve": "eve's secret"}
JAVA_OPTIONS = ("-Xmx256m", "-Xms64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
#: A lost leader is noticed after seconds: by Kafka's own settings it takes ten.
QUICK_ELECTIONS = {
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "500",
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.fetch.timeout.ms": "1000",
}
_LOG4J = """<Configuration status="WARN"><Appenders><Console name="out"><PatternLayout pattern="%d %p %c: %m%n"/></Console>
</Appenders><Loggers><Root level="WARN"><AppenderRef ref="out"/></Root></Loggers></Configuration>
"""


def kafka_jars() -> Path:
    """The folder with the jars of the broker; fetch them by Maven if they are not there."""
    return fetched(f"kafka-{RELEASE}", pom_of(ARTIFACTS), what=f"Kafka {RELEASE}")


class KafkaBroker:
    """One broker with a folder of its own, that can be ended and started again on the same ports with what it held."""

    def __init__(self, folder: Path, node: int, *, jars: Path, java: Path) -> None:
        self.node = node
        self.port, self.sasl_port, self.controller_port = free_port(), free_port(), free_port()
        self.folder = folder
        self._command = [str(java), *JAVA_OPTIONS, f"-Dlog4j2.configurationFile={folder / 'log4j2.xml'}"]
        self._command += ["-cp", f"{jars}/*"]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def make(self, cluster: str, settings: Mapping[str, str]) -> None:
        """Write the settings, and format the folder."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "log4j2.xml").write_text(_LOG4J)
        lines = [f"{name}={value}\n" for name, value in settings.items()]
        (self.folder / "server.properties").write_text("".join(lines))
        words = ["kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(self.folder / "server.properties")]
        if self._run(words).wait() != 0:
            raise PeerUnavailable(f"Kafka's folder cannot be formatted: {self._said()!r}")

    def start(self) -> None:
        self._process = self._run(["kafka.Kafka", str(self.folder / "server.properties")])

    def wait_until_ready(self) -> None:
        """Wait until clients are answered."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        deadline = time.monotonic() + START_SECONDS_MAX
        client = AdminClient({"bootstrap.servers": f"127.0.0.1:{self.port}", "log_level": 0})
        while True:
            with contextlib.suppress(KafkaException):
                if self.node in client.list_topics(timeout=1).brokers:
                    return
            if self._process is None or self._process.poll() is not None or time.monotonic() > deadline:
                raise PeerUnavailable(f"Kafka did not start: {self._said()!r}")

    def kill(self) -> None:
        """End it at once, as a crash does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _run(self, words: list[str]) -> subprocess.Popen[bytes]:
        with (self.folder / "broker.log").open("ab") as output:
            return subprocess.Popen(
                [*self._command, *words], stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=self.folder
            )

    def _said(self) -> str:
        return (self.folder / "broker.log").read_text(errors="replace")[-300:]


class Kafka:
    """Brokers that are one cluster."""

    def __init__(self, brokers: list[KafkaBroker]) -> None:
        self.brokers = brokers

    @property
    def broker(self) -> KafkaBroker:
        """The first one."""
        return self.brokers[0]

    @property
    def bootstrap(self) -> str:
        """The brokers as Kafka's own clients name them."""
        return ",".join(f"127.0.0.1:{broker.port}" for broker in self.brokers)

    @property
    def address(self) -> str:
        """The address of the log."""
        return f"kafka://{self.bootstrap}"

    @property
    def sasl_address(self) -> str:
        """The address with SASL/PLAIN, for one of `USERS`."""
        return "kafka://" + ",".join(f"127.0.0.1:{broker.sasl_port}" for broker in self.brokers)


@contextlib.contextmanager
def kafka_brokers(folder: Path, *, count: int = 1, settings: Mapping[str, str] | None = None) -> Iterator[Kafka]:
    """A cluster that runs: one broker, or three of which any one can be lost."""
    from headwater.spark.errors import JavaMissing
    from headwater.spark.java import find_java

    jars = kafka_jars()
    try:
        java = find_java().home / "bin" / "java"
    except JavaMissing as error:
        raise PeerUnavailable(f"Kafka needs Java: {error}") from None
    brokers = [KafkaBroker(folder / f"broker{node}", node, jars=jars, java=java) for node in range(1, count + 1)]
    # Kafka takes a first `-` for an option: the first byte is such that the text begins with a letter.
    cluster = base64.urlsafe_b64encode(b"K" + uuid.uuid4().bytes[1:]).decode().rstrip("=")
    try:
        for broker in brokers:
            broker.make(cluster, _settings(broker, brokers) | dict(settings or {}))
        for broker in brokers:
            broker.start()
        for broker in brokers:
            broker.wait_until_ready()
        yield Kafka(brokers)
    finally:
        for broker in brokers:
            broker.kill()  # what they hold is thrown away


def _settings(broker: KafkaBroker, brokers: list[KafkaBroker]) -> dict[str, str]:
    count = len(brokers)
    copies, needed = str(min(count, 3)), str(2 if count > 2 else 1)
    users = " ".join(f'user_{name}="{password}"' for name, password in USERS.items())
    login = f"org.apache.kafka.common.security.plain.PlainLoginModule required {users};"
    places = {"PLAINTEXT": broker.port, "SASL": broker.sasl_port}
    listeners = ",".join(f"{name}://127.0.0.1:{port}" for name, port in places.items())
    return {
        "process.roles": "broker,controller",
        "node.id": str(broker.node),
        "controller.quorum.voters": ",".join(f"{one.node}@127.0.0.1:{one.controller_port}" for one in brokers),
        "listeners": f"{listeners},CONTROLLER://127.0.0.1:{broker.controller_port}",
        "advertised.listeners": listeners,
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
        "listener.name.sasl.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl.plain.sasl.jaas.config": login,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "log.dirs": str(broker.folder / "data"),
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": needed,
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": needed,
        "default.replication.factor": copies,
        "min.insync.replicas": needed,
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.num.partitions": "4",
        "share.coordinator.state.topic.num.partitions": "4",
        "group.initial.rebalance.delay.ms": "0",
        "auto.create.topics.enable": "false",
        "log.cleaner.backoff.ms": "200",
        "log.retention.check.interval.ms": "1000",
        # Deleted topics are gone at once, or tests would fill the disk.
        "log.segment.delete.delay.ms": "0",
        **(QUICK_ELECTIONS if count > 1 else {}),
    }
