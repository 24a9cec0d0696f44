"""A session on a Spark cluster: the address of the driver, the settings of the executors, and how far keyed work is cut.

Executors are other processes, perhaps on other hosts. They know nothing of the driver's environment and folder, so whatever
they need is among the settings of the session.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from urllib.parse import urlsplit

#: Into how many partitions keyed work is cut where nothing else is said. How many cores a cluster has is not known when a
#: session starts, and the state of a query keeps to the number with which the query began.
PARTITIONS = 8
#: The prefixes of settings in the environment that executors need: Headwater's own, and those of an object store.
_HANDED_ON = ("HEADWATER_", "AWS_")


def is_local(master: str) -> bool:
    """Whether a master runs its tasks on this machine, in processes that have this one's environment.

    >>> is_local("local[2]"), is_local("spark://10.0.0.1:7077")
    (True, False)
    """
    return master.startswith("local")


def cluster_settings(master: str, environ: Mapping[str, str]) -> dict[str, str]:
    """The settings of a session on a cluster that it would not need on one machine."""
    settings = {"spark.sql.shuffle.partitions": str(PARTITIONS)}
    address = environ.get("SPARK_LOCAL_IP") or driver_address(master)
    if address is not None:
        settings["spark.driver.host"] = settings["spark.driver.bindAddress"] = address
    # The address and the token of a log are in such variables, too; Spark's own pages hide values named so.
    settings |= {f"spark.executorEnv.{name}": value for name, value in environ.items() if name.startswith(_HANDED_ON)}
    return settings


def object_store_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """Settings by which Spark's own `s3a://` finds the object store that the environment names; credentials it finds itself.

    >>> object_store_settings({"AWS_ENDPOINT_URL": "http://127.0.0.1:8333"})["spark.hadoop.fs.s3a.endpoint"]
    'http://127.0.0.1:8333'
    >>> object_store_settings({})
    {}
    """
    settings = {}
    if region := environ.get("AWS_REGION"):
        settings["endpoint.region"] = region
    if endpoint := environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL"):
        settings |= {
            "endpoint": endpoint,
            "path.style.access": "true",
            "connection.ssl.enabled": str(endpoint.startswith("https://")).lower(),
        }
    return {f"spark.hadoop.fs.s3a.{name}": value for name, value in settings.items()}


def driver_address(master: str) -> str | None:
    """The address of this machine from which it reaches a standalone master; None where Spark itself knows better.

    By default Spark announces what the host name resolves to, which is often a loopback address that no executor reaches.

    >>> driver_address("spark://127.0.0.1:7077,127.0.0.1:7078"), driver_address("yarn")
    ('127.0.0.1', None)
    """
    if not master.startswith("spark://"):
        return None
    first = urlsplit(master.partition(",")[0])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((first.hostname or "", first.port or 7077))  # sends nothing: the kernel chooses a route
        except (OSError, ValueError):
            return None
        address: str = probe.getsockname()[0]
        return address
