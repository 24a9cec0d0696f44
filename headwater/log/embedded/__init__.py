"""The embedded log: a folder, no daemon, many processes."""

from headwater.log.embedded.log import EmbeddedLog, local_log, open_folder
from headwater.log.embedded.ranges import Punctuation, punctuations_at, read_range

__all__ = ["EmbeddedLog", "Punctuation", "local_log", "open_folder", "punctuations_at", "read_range"]
