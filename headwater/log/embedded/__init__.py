"""The embedded log: a folder, no daemon, many processes."""

from headwater.log.embedded.log import EmbeddedLog

__all__ = ["EmbeddedLog"]
