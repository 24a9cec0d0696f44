"""The servers whose databases are captured."""

from tests.servers import mariadb as mariadb
