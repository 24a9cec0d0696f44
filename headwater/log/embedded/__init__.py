"""The embedded log: a folder, no daemon, many processes."""

from headwater.log.embedded.log import EmbeddedLog, local_log, open_folder

__all__ = ["EmbeddedLog", "local_log", "open_folder"]
