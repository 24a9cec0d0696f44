"""MariaDB as a source: its binary log in rows, from a GTID, and snapshots that belong to an exact place in it."""

from headwater.capture.mariadb.connector import MariadbConnector

__all__ = ["MariadbConnector"]
