"""Change data capture: the tables of a database as topics, every row and every change, in commit order, exactly once."""

from headwater.capture.capture import Capture
from headwater.capture.config import CaptureConfig
from headwater.capture.connectors import Connector
from headwater.capture.errors import CaptureChanged, ColumnRetyped, SourceInvalid, SourceReplaced, SourceUnreachable
from headwater.capture.port import Changes, Misfit, Piece, SnapshotProgress, Source, SourceHealth, Table
from headwater.capture.store import CaptureProgress, CaptureStore

__all__ = [
    "Capture",
    "CaptureChanged",
    "CaptureConfig",
    "CaptureProgress",
    "CaptureStore",
    "Changes",
    "ColumnRetyped",
    "Connector",
    "Misfit",
    "Piece",
    "SnapshotProgress",
    "Source",
    "SourceHealth",
    "SourceInvalid",
    "SourceReplaced",
    "SourceUnreachable",
    "Table",
]
