"""Real servers for tests: PostgreSQL, MariaDB, Redis, mosquitto, SMTP and an HTTP receiver, each on 127.0.0.1 and a free port.

Each is started in a folder of its own and is gone afterwards. Where one cannot be had on this machine, the context
managers raise `PeerUnavailable` with the reason in one line, and the fixtures skip the test with it.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from email.message import EmailMessage, Message
from email.parser import BytesParser
from email.policy import default as modern
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TypeVar

import pytest

from benchmarks.peer_servers import START_SECONDS_MAX, ObjectStore, PeerUnavailable, free_port, redis_server, seaweedfs
from headwater.engine.object_folder import forget_settings

__all__ = ["PeerUnavailable", "free_port", "redis_server"]

PASSWORD = "a test's password"
T = TypeVar("T")
#: Settings of PostgreSQL that captures and two-phase commits need: large transactions are streamed early, so that tests need
#: few rows for one.
LOGICAL = {
    "wal_level": "logical",
    "max_replication_slots": "40",
    "max_wal_senders": "40",
    "logical_decoding_work_mem": "64kB",
    "max_prepared_transactions": "16",
}


# -- PostgreSQL -------------------------------------------------------------------------------------------------------


class Postgres:
    """A PostgreSQL cluster of its own, that can be stopped and started again on the same port."""

    user = "headwater"
    password = PASSWORD

    def __init__(self, folder: Path, programs: Path, account: pwd.struct_passwd | None) -> None:
        self.port = free_port()
        self._folder = folder
        self._programs = programs
        self._account = account
        self._process: subprocess.Popen[bytes] | None = None
        self._databases = 0

    def conninfo(self, database: str = "postgres") -> str:
        """How to connect, as a URL."""
        secret = self.password.replace(" ", "%20").replace("'", "%27")
        return f"postgresql://{self.user}:{secret}@127.0.0.1:{self.port}/{database}"

    def new_database(self) -> str:
        """A fresh, empty database; returns how to connect to it."""
        self._databases += 1
        name = f"test_{self._databases}"
        self.execute(f"CREATE DATABASE {name}")
        return self.conninfo(name)

    def execute(self, statement: str, *, conninfo: str | None = None) -> list[tuple[Any, ...]]:
        """Run one statement by itself, and return its rows if it has any."""
        import psycopg

        with psycopg.connect(conninfo or self.conninfo(), autocommit=True) as connection:
            # Tests write their statements themselves; the type wants literals only.
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def start(self, *, settings: Mapping[str, str] | None = None) -> None:
        options = {"listen_addresses": "127.0.0.1", "unix_socket_directories": "", "fsync": "off", **LOGICAL} | dict(
            settings or {}
        )
        words = [str(self._programs / "postgres"), "-D", str(self._folder / "data"), "-p", str(self.port)]
        for name, value in options.items():
            words += ["-c", f"{name}={value}"]
        with (self._folder / "log").open("ab") as output:
            self._process = self._run(words, output)
        deadline = time.monotonic() + START_SECONDS_MAX
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise PeerUnavailable(f"postgres did not start: {(self._folder / 'log').read_text()[-300:]!r}")
            time.sleep(0.05)

    def stop(self, *, seconds_max: float = 20) -> None:
        """Cut all connections and end, as an operator's `pg_ctl stop -m fast` does."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGINT)
        try:
            self._process.wait(timeout=seconds_max)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def back_up(self) -> None:
        """Copy the files of a server that is stopped; `restore` brings them back."""
        subprocess.run(["cp", "-a", str(self._folder / "data"), str(self._folder / "backup")], check=True)

    def restore(self) -> None:
        shutil.rmtree(self._folder / "data")
        (self._folder / "backup").rename(self._folder / "data")

    def fail_over(self) -> None:
        """Start as a standby and be promoted, as the standby of a primary that is lost."""
        signal_file = self._folder / "data" / "standby.signal"
        signal_file.touch()
        shutil.copystat(self._folder / "data" / "PG_VERSION", signal_file)
        if self._account is not None:
            os.chown(signal_file, self._account.pw_uid, self._account.pw_gid)
        self.start()
        self.execute("SELECT pg_promote()")

    def make(self) -> None:
        """Make the cluster on disk."""
        secret = self._folder / "secret"
        secret.write_text(self.password)
        if self._account is not None:
            os.chown(self._folder, self._account.pw_uid, self._account.pw_gid)
            os.chown(secret, self._account.pw_uid, self._account.pw_gid)
        words = [str(self._programs / "initdb"), "-D", str(self._folder / "data"), "-U", self.user, "-E", "UTF8"]
        words += ["--auth=scram-sha-256", f"--pwfile={secret}", "--no-sync", "--locale=C"]
        with (self._folder / "log").open("ab") as output:
            if self._run(words, output).wait() != 0:
                raise PeerUnavailable(f"initdb failed: {(self._folder / 'log').read_text()[-300:]!r}")

    def _run(self, words: list[str], output: Any) -> subprocess.Popen[bytes]:
        account = self._account
        return subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=self._folder,
            user=None if account is None else account.pw_uid,
            group=None if account is None else account.pw_gid,
            extra_groups=None if account is None else [],
        )  # fmt: skip

    def _answers(self) -> bool:
        import psycopg

        with contextlib.suppress(psycopg.OperationalError), psycopg.connect(self.conninfo(), connect_timeout=2):
            return True
        return False


@contextlib.contextmanager
def postgres_server(*, settings: Mapping[str, str] | None = None) -> Iterator[Postgres]:
    """A PostgreSQL that runs. It refuses to be root's, so that root lends it to an account without rights."""
    programs = _postgres_programs()
    account = _account_without_rights("postgres", "nobody") if os.geteuid() == 0 else None
    folder = Path(tempfile.mkdtemp(prefix="headwater-postgres-"))
    server = Postgres(folder, programs, account)
    try:
        server.make()
        server.start(settings=settings)
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _postgres_programs() -> Path:
    found = _find_postgres()
    if found is None:
        raise PeerUnavailable("PostgreSQL is not installed: `apt-get install postgresql`, or `pip install pgserver`")
    return found


def _find_postgres() -> Path | None:
    program = shutil.which("initdb")
    places = [] if program is None else [Path(program).resolve().parent]
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    with contextlib.suppress(ImportError):
        import pgserver  # type: ignore[import-not-found,unused-ignore]

        places.append(Path(pgserver.__file__).parent / "pginstall" / "bin")
    return next((place for place in places if (place / "initdb").exists() and (place / "postgres").exists()), None)


def _account_without_rights(*names: str) -> pwd.struct_passwd:
    for name in names:
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise PeerUnavailable(f"a database does not run as root, and this machine has no account {' or '.join(names)}")


# -- MariaDB ----------------------------------------------------------------------------------------------------------


class Mariadb:
    """A MariaDB server of its own with a binary log, that can be stopped and started again on the same port."""

    user = "root"
    settings: Mapping[str, str] = {
        "log-bin": "binlog",
        "server-id": "7",
        "binlog-format": "ROW",
        "binlog-row-metadata": "FULL",
        "innodb-flush-log-at-trx-commit": "0",
        "innodb-buffer-pool-size": "32M",
    }

    def __init__(self, folder: Path, account: pwd.struct_passwd | None) -> None:
        self.port = free_port()
        self._folder = folder
        self._account = account
        self._process: subprocess.Popen[bytes] | None = None
        self._databases = 0

    def url(self, database: str, *, user: str = user) -> str:
        """How to connect, as a URL without a password."""
        return f"mariadb://{user}@127.0.0.1:{self.port}/{database}"

    def new_database(self) -> str:
        """Create an empty database; returns its name."""
        self._databases += 1
        name = f"test_{self._databases}"
        with self.connect() as connection:
            connection.cursor().execute(f"CREATE DATABASE {name} CHARACTER SET utf8mb4")
        return name

    # Any: PyMySQL has no types.
    def connect(self, database: str | None = None, **settings: Any) -> Any:
        """A connection as an administrator."""
        import pymysql

        return pymysql.connect(
            **{"host": "127.0.0.1", "port": self.port, "user": self.user, "database": database, "autocommit": True}
            | settings
        )

    def make(self) -> None:
        """Make the database folder."""
        if self._account is not None:
            os.chown(self._folder, self._account.pw_uid, self._account.pw_gid)
        words = ["mariadb-install-db", "--no-defaults", f"--datadir={self._folder}/data"]
        words += ["--auth-root-authentication-method=normal", "--skip-test-db"]
        with (self._folder / "log").open("ab") as output:
            if self._run(words, output).wait() != 0:
                raise PeerUnavailable(f"mariadb-install-db failed: {(self._folder / 'log').read_text()[-300:]!r}")

    def start(self, *, settings: Mapping[str, str] | None = None) -> None:
        import pymysql

        words = ["mariadbd", "--no-defaults", f"--datadir={self._folder}/data", f"--socket={self._folder}/socket"]
        words += [f"--port={self.port}", "--bind-address=127.0.0.1"]
        words += [f"--{name}={value}" for name, value in ({**self.settings, **(settings or {})}).items()]
        with (self._folder / "log").open("ab") as output:
            self._process = self._run(words, output)
        deadline = time.monotonic() + START_SECONDS_MAX
        while True:
            with contextlib.suppress(pymysql.err.OperationalError), self.connect(connect_timeout=2):
                return
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise PeerUnavailable(f"mariadbd did not start: {(self._folder / 'log').read_text()[-300:]!r}")
            time.sleep(0.05)

    def stop(self) -> None:
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def _run(self, words: list[str], output: Any) -> subprocess.Popen[bytes]:
        account = self._account
        return subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=self._folder,
            user=None if account is None else account.pw_uid,
            group=None if account is None else account.pw_gid,
            extra_groups=None if account is None else [],
        )  # fmt: skip


@contextlib.contextmanager
def mariadb_server(*, settings: Mapping[str, str] | None = None) -> Iterator[Mariadb]:
    """A MariaDB that runs. It refuses to be root's, so that root lends it to an account without rights."""
    if shutil.which("mariadbd") is None or shutil.which("mariadb-install-db") is None:
        raise PeerUnavailable("MariaDB is not installed: `apt-get install mariadb-server`")
    account = _account_without_rights("mysql", "nobody") if os.geteuid() == 0 else None
    folder = Path(tempfile.mkdtemp(prefix="headwater-mariadb-"))
    server = Mariadb(folder, account)
    try:
        server.make()
        server.start(settings=settings)
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


# -- Redis ------------------------------------------------------------------------------------------------------------


class Redis:
    """A Redis with a folder of its own, that can be stopped and started again on the same port with what it held."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._folder = folder
        self._running = contextlib.ExitStack()

    def start(self) -> None:
        if shutil.which("redis-server") is None:  # a benchmark would install it; tests change nothing on a machine
            raise PeerUnavailable("redis-server is not installed: `apt-get install redis-server`")
        self._running.enter_context(redis_server(self._folder, appendfsync="no", port=self.port))

    def stop(self) -> None:
        self._running.close()


@contextlib.contextmanager
def redis_process(folder: Path) -> Iterator[Redis]:
    """A Redis that runs."""
    server = Redis(folder)
    server.start()
    try:
        yield server
    finally:
        server.stop()


# -- mosquitto --------------------------------------------------------------------------------------------------------


class Mosquitto:
    """An MQTT broker with a folder of its own, that can be stopped and started again on the same port with its sessions."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.url = f"mqtt://127.0.0.1:{self.port}"
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        program = shutil.which("mosquitto", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
        if program is None:
            raise PeerUnavailable("mosquitto is not installed: `apt-get install mosquitto mosquitto-clients`")
        settings = [
            f"listener {self.port} 127.0.0.1",
            "allow_anonymous true",
            "persistence true",
            "max_queued_messages 0",
        ]
        settings += [f"persistence_location {self._folder}/", "autosave_interval 1"]
        (self._folder / "settings").write_text("\n".join(settings) + "\n")
        self._folder.chmod(0o777)  # started by root it becomes another user
        with (self._folder / "log").open("ab") as output:
            words = [program, "-c", str(self._folder / "settings")]
            self._process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        wait_for_port(self.port)

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(timeout=20)
            self._process = None

    def publish(self, topic: str, lines: list[str], *, qos: int = 1) -> None:
        """Publish a message for each line, by mosquitto's own client; return when the broker has all of them."""
        words = ["mosquitto_pub", "-p", str(self.port), "-V", "5", "-q", str(qos), "-t", topic, "-l"]
        subprocess.run(words, input="".join(f"{line}\n" for line in lines).encode(), check=True, timeout=60)


@contextlib.contextmanager
def mosquitto_process() -> Iterator[Mosquitto]:
    """A broker that runs."""
    folder = Path(tempfile.mkdtemp(prefix="headwater-mosquitto-"))
    server = Mosquitto(folder)
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


# -- an HTTP receiver -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Request:
    """One request that arrived."""

    path: str
    headers: Mapping[str, str]
    body: bytes


#: What to answer to a request: a status, and headers.
Answer = Callable[[Request], tuple[int, Mapping[str, str]]]


@dataclass
class Receiver:
    """An HTTP server that keeps what it gets; `answer` decides what it says to each request."""

    port: int
    requests: list[Request] = field(default_factory=list)
    answer: Answer = lambda _request: (200, {})

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"


@contextlib.contextmanager
def http_receiver(*, port: int = 0) -> Iterator[Receiver]:
    """A receiver that answers 200 to every POST until it is told otherwise."""
    receiver = Receiver(port)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            request = Request(path=self.path, headers={k.lower(): v for k, v in self.headers.items()}, body=body)
            status, headers = receiver.answer(request)
            receiver.requests.append(request)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_arguments: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    receiver.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


# -- an SMTP server ---------------------------------------------------------------------------------------------------


@dataclass
class Mailbox:
    """An SMTP server that keeps the mail it gets; `refuse` may name recipients that it will not take."""

    port: int
    messages: list[Message | EmailMessage] = field(default_factory=list)
    refuse: Mapping[str, str] = field(default_factory=dict)

    # The names are those that aiosmtpd calls.
    async def handle_RCPT(self, _server: Any, _session: Any, envelope: Any, address: str, _options: Any) -> str:  # noqa: N802
        if address in self.refuse:
            return self.refuse[address]
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:  # noqa: N802
        self.messages.append(BytesParser(policy=modern).parsebytes(envelope.content))
        return "250 taken"


@contextlib.contextmanager
def smtp_server(*, port: int = 0) -> Iterator[Mailbox]:
    """An SMTP server that takes all mail."""
    try:
        from aiosmtpd.controller import Controller
    except ImportError:
        raise PeerUnavailable("aiosmtpd is not installed: `pip install aiosmtpd`") from None
    mailbox = Mailbox(port or free_port())
    controller = Controller(mailbox, hostname="127.0.0.1", port=mailbox.port)
    controller.start()
    try:
        yield mailbox
    finally:
        controller.stop()


# -- a Spark cluster --------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def spark_cluster(folder: Path, *, hosts: tuple[str, ...] = ("127.0.0.2", "127.0.0.3")) -> Iterator[str]:
    """A master, and a worker with one core on each of some hosts; yields the master's address.

    All hosts are this machine. They have different names because Spark lets a task be overtaken only on another host,
    so that on `local-cluster`, which has one, none ever is.
    """
    import pyspark

    from headwater.spark.java import find_java

    program = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
    environment = {**os.environ, "JAVA_HOME": str(find_java().home), "PYSPARK_PYTHON": sys.executable}
    port = free_port()
    package, address = "org.apache.spark.deploy", f"spark://127.0.0.1:{port}"
    words = [[f"{package}.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"]]
    for host in hosts:
        place = [
            "--host",
            host,
            "--cores",
            "1",
            "--memory",
            "1g",
            "--webui-port",
            "0",
            "--work-dir",
            str(folder / host),
        ]
        words.append([f"{package}.worker.Worker", *place, address])
    started = []
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with (folder / "cluster.log").open("ab") as output:
            for some in words:
                process = subprocess.Popen(
                    [program, *some],
                    env=environment,
                    cwd=folder,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                )
                started.append(process)
                if len(started) == 1:
                    wait_for_port(port)
        yield address
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


# -- fixtures ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """One PostgreSQL for all tests of the process; take a `new_database()` of it, and leave it running."""
    with or_skip(postgres_server()) as server:
        yield server


@pytest.fixture(scope="session")
def mariadb() -> Iterator[Mariadb]:
    """One MariaDB for all tests of the process; take a `new_database()` of it, and leave it running."""
    with or_skip(mariadb_server()) as server:
        yield server


@pytest.fixture(scope="session")
def redis_peer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Redis]:
    """One Redis for all tests of the process; use keys of your own, and leave it running."""
    with or_skip(redis_process(tmp_path_factory.mktemp("redis"))) as server:
        yield server


@pytest.fixture(scope="session")
def object_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    """A SeaweedFS of the session, with one bucket."""
    with or_skip(seaweedfs(tmp_path_factory.mktemp("seaweedfs"))) as server:
        yield server


@pytest.fixture
def objects(object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """The address of an empty prefix in an object store; this process and its children find the store."""
    for name, value in object_store.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HEADWATER_STATE_CACHE_DIR", str(tmp_path / "copies"))
    forget_settings()
    return f"s3://{object_store.bucket}/{uuid.uuid4().hex}"


@pytest.fixture
def mosquitto() -> Iterator[Mosquitto]:
    """A broker of the test's own, which may stop it and start it again."""
    with or_skip(mosquitto_process()) as server:
        yield server


@pytest.fixture(scope="session")
def redis_url(redis_peer: Redis) -> str:
    """The address of the one Redis of the process."""
    return redis_peer.url


@contextlib.contextmanager
def or_skip(manager: contextlib.AbstractContextManager[T]) -> Iterator[T]:
    try:
        entered = manager.__enter__()
    except PeerUnavailable as error:
        pytest.skip(str(error))
    try:
        yield entered
    finally:
        manager.__exit__(None, None, None)


def wait_for_port(port: int, *, seconds: float = 20.0) -> None:
    """Wait until a process listens on the port."""
    deadline = time.monotonic() + seconds
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"no process listens on port {port}")
        time.sleep(0.02)
