"""Tables that are kept up to date: what the operators on changelogs share."""

from headwater.operators.tables.codes import codes
from headwater.operators.tables.emitting import PLACE, Emit, check_emit, emitted
from headwater.operators.tables.follow import Follow
from headwater.operators.tables.inputs import (
    Names,
    TableLike,
    check_key,
    check_names,
    frame_of,
    has_place,
    key_of,
    names_of,
    operation,
    own_columns,
    places,
)
from headwater.operators.tables.replacing import Following, Replaced, taken, told

__all__ = [
    "PLACE",
    "Emit",
    "Follow",
    "Following",
    "Names",
    "Replaced",
    "TableLike",
    "check_emit",
    "check_key",
    "check_names",
    "codes",
    "emitted",
    "frame_of",
    "has_place",
    "key_of",
    "names_of",
    "operation",
    "own_columns",
    "places",
    "taken",
    "told",
]
