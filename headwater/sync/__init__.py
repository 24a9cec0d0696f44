"""Systems kept in sync: the tables that topics hold, applied to databases, caches, indexes and lakes."""

from headwater.sync.comparison import Difference, TableComparison
from headwater.sync.config import SyncConfig
from headwater.sync.errors import ChangeRefused, SyncFenced, SyncInvalid, TargetRefused, TopicGap
from headwater.sync.port import Position, Step, TableChanges, Target, TargetTable
from headwater.sync.store import SyncStore
from headwater.sync.sync import Applied, Sync
from headwater.sync.targets import TargetKind

__all__ = [
    "Applied",
    "ChangeRefused",
    "Difference",
    "Position",
    "Step",
    "Sync",
    "SyncConfig",
    "SyncFenced",
    "SyncInvalid",
    "SyncStore",
    "TableChanges",
    "TableComparison",
    "Target",
    "TargetKind",
    "TargetRefused",
    "TargetTable",
    "TopicGap",
]
