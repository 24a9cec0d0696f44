"""The embedded log: a folder, no daemon, many processes."""

from headwater.log.embedded.log import EmbeddedLog
from headwater.log.embedded.ranges import Punctuation, punctuations_at, read_range

__all__ = ["EmbeddedLog", "Punctuation", "punctuations_at", "read_range"]
