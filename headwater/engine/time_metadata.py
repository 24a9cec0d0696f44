"""The event time of a topic travels with the DataFrame as metadata of its column, as that of Spark's own `withWatermark` does.

So it survives `select`, `where`, `withColumn` and operators.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from headwater.schema.event_time import EventTime

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

#: The metadata of a column that is event time: its settings as JSON text.
METADATA = "headwater.event_time"
#: The metadata of a column that says where its watermark is recorded, as `headwater.engine.watermark_origin` encodes it.
ORIGIN = "headwater.watermark"


def carried_times(schema: StructType) -> dict[str, EventTime]:
    """The columns of a DataFrame that are event time, with their settings.

    Spark also hands the metadata on to what it computes of a time, such as a window.
    """
    times = [field for field in schema.fields if field.dataType.typeName() in ("timestamp", "timestamp_ntz")]
    found = {field.name: (field.metadata or {}).get(METADATA) for field in times}
    return {name: EventTime(name, **json.loads(text)) for name, text in found.items() if text is not None}


def marked(schema: StructType, times: Iterable[EventTime], origins: Mapping[str, str] | None = None) -> StructType:
    """Mark columns of a schema as event time, and say where the watermarks of columns are recorded."""
    from pyspark.sql.types import StructField, StructType

    settings: dict[str, dict[str, str]] = {time.column: metadata_of(time) for time in times}
    for name, origin in (origins or {}).items():
        settings[name] = {**settings.get(name, {}), ORIGIN: origin}
    return StructType([
        StructField(field.name, field.dataType, field.nullable, {**(field.metadata or {}), **settings.get(field.name, {})})
        for field in schema.fields
    ])  # fmt: skip


def metadata_of(time: EventTime) -> dict[str, str]:
    """The metadata of a column that is event time."""
    form = time.to_json()
    settings = {} if isinstance(form, str) else {name: value for name, value in form.items() if name != "column"}
    return {METADATA: json.dumps(settings)}
