"""The adapter that reaches a log through its server, over HTTP."""

from headwater.log.remote.log import RemoteLog

__all__ = ["RemoteLog"]
