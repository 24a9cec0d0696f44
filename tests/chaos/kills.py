"""The hook in every Python process of a query: the process that reaches the armed crash point kills the victim.

One order is armed at a time, as a file `armed-<visits left>.json` in a folder that an environment variable names. A
process at the order's point renames the file to one visit less. A rename succeeds for one process only, so exactly one
process carries out the order.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headwater.faults import install

FOLDER = "CHAOS_OF_HEADWATER"
VICTIMS = ("driver", "jvm", "worker")
"""`driver`: the driver's Python process, its JVM and the process at the point, all at once. `jvm`: the JVM alone; the
process at the point continues until it notices. `worker`: the process at the point alone; outside of tasks, that is the
process which runs the app, and its JVM continues until it notices."""


class OrderedFailure(Exception):
    """Raised in a task by an order to fail it."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """The victim to kill, at the `visit`-th time that any process reaches `point`."""

    point: str
    victim: str
    visit: int = 1
    number: int = 0

    def __str__(self) -> str:
        return f"{self.victim} at {self.point}, visit {self.visit}"


@dataclass(frozen=True, kw_only=True)
class Strike:
    """An order that was carried out: by which process, in which batch, as which attempt of its task."""

    number: int
    point: str
    victim: str
    pid: int
    batch: int | None
    attempt: int | None
    life: str

    def __str__(self) -> str:
        where = "" if self.batch is None else f", batch {self.batch}, attempt {self.attempt} of its task"
        return f"{self.victim} at {self.point}{where}"


class Control:
    """The folder through which the runner gives orders and reads their results."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def arm(self, order: Order) -> None:
        self.write(f"armed-{order.visit}.json", asdict(order))

    def disarm(self) -> None:
        for path in self.folder.glob("armed-*.json"):
            path.unlink(missing_ok=True)

    def take(self, point: str) -> Order | None:
        """Count a visit of `point`; return the order if this was its visit."""
        while True:
            armed = [name for name in os.listdir(self.folder) if name.startswith("armed-")]
            if not armed:
                return None
            path = self.folder / armed[0]
            left = int(armed[0].removeprefix("armed-").removesuffix(".json"))
            try:
                order = Order(**json.loads(path.read_text()))
                if order.point != point:
                    return None
                path.rename(self.folder / (f"armed-{left - 1}.json" if left > 1 else "claimed.json"))
            except FileNotFoundError:  # another process has counted a visit
                continue
            return order if left == 1 else None

    def strike(self, number: int) -> Strike | None:
        """The result of an order; None if it was not carried out yet."""
        body = self.read(f"strike-{number}.json")
        return None if body is None else Strike(**body)

    def strikes(self) -> list[Strike]:
        """All orders that were carried out."""
        found = [self.read(path.name) for path in sorted(self.folder.glob("strike-*.json"))]
        return [Strike(**body) for body in found if body is not None]

    def pids(self) -> dict[str, int]:
        """The processes of the driver: `driver` and `jvm`."""
        return self.read("pids.json") or {}

    # Any: JSON.
    def read(self, name: str) -> dict[str, Any] | None:
        try:
            body: dict[str, Any] = json.loads((self.folder / name).read_text())
        except FileNotFoundError:
            return None
        return body

    def write(self, name: str, body: dict[str, Any]) -> None:
        temporary = self.folder / f".{name}.{os.getpid()}"
        temporary.write_text(json.dumps(body))
        temporary.rename(self.folder / name)


def install_from_environment() -> None:
    """Install the hook in this process, if it belongs to a query that is to be killed. `sitecustomize` calls it."""
    folder = os.environ.get(FOLDER)
    if folder is None:
        return
    control = Control(Path(folder))

    def hook(point: str) -> None:
        order = control.take(point)
        if order is not None:
            carry_out(order, control)

    install(hook)


def carry_out(order: Order, control: Control) -> None:
    batch, attempt = _batch()
    life = os.environ.get(f"{FOLDER}_LIFE", "")
    strike = Strike(
        number=order.number,
        point=order.point,
        victim=order.victim,
        pid=os.getpid(),
        batch=batch,
        attempt=attempt,
        life=life,
    )
    pids = control.pids()
    control.write(f"strike-{order.number}.json", asdict(strike))
    match order.victim:
        case "worker":
            os.kill(os.getpid(), signal.SIGKILL)
        case "jvm":
            os.kill(pids["jvm"], signal.SIGKILL)
        case "driver":
            for pid in [pid for pid in pids.values() if pid != os.getpid()]:
                with contextlib.suppress(ProcessLookupError):  # a process of an earlier life
                    os.kill(pid, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        case "executor":
            os.kill(_parent(os.getppid()), signal.SIGKILL)
            time.sleep(60)  # it ends with the executor
        case "task":
            raise OrderedFailure(f"the first attempt fails at {order.point}")


def _batch() -> tuple[int | None, int | None]:
    if "pyspark.taskcontext" not in sys.modules:
        return None, None
    from pyspark import TaskContext

    from headwater.engine.micro_batch import BATCH_ID

    context = TaskContext.get()
    if context is None:
        return None, None
    number = context.getLocalProperty(BATCH_ID)
    return None if number is None else int(number), context.attemptNumber()


def _parent(pid: int) -> int:
    """The parent of another process: the executor's JVM, for the process that forks its workers."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
