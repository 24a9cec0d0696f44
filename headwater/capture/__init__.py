"""Change data capture: the tables of a database as topics, every row and every change, in commit order, exactly once."""

from headwater.capture.capture import Capture, CaptureConfig, CaptureProgress, CaptureStore
from headwater.capture.errors import SourceInvalid, SourceReplaced
from headwater.capture.port import Piece, SnapshotProgress, SourceHealth

__all__ = [
    "Capture",
    "CaptureConfig",
    "CaptureProgress",
    "CaptureStore",
    "Piece",
    "SnapshotProgress",
    "SourceHealth",
    "SourceInvalid",
    "SourceReplaced",
]
