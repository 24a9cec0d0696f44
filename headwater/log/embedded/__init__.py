"""The embedded log: a folder, no daemon, many processes."""

from headwater.log.embedded.log import EmbeddedLog
from headwater.log.embedded.ranges import Piece, read_range

__all__ = ["EmbeddedLog", "Piece", "read_range"]
