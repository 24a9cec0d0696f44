"""The servers whose databases are captured, and small disks."""

from tests.disks import disk_of as disk_of
from tests.servers import mariadb as mariadb
