"""Personal values in rows that were derived from events, such as those of a view: encrypted, until a reader may see them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from headwater.log import Log
from headwater.sourcing.keys import MARK, KeyStore, is_encrypted, keys_folder
from headwater.sourcing.personal import ERASED


def reveal(log: Log, rows: pa.Table, *, keys: str | Path | None = None) -> pa.Table:
    """Rows with the personal values decrypted that their columns of text hold as JSON.

    A query that takes a field of an event, such as `get_json_object(data, '$.name')`, passes it on encrypted: so do its
    state, its view and what is made of that. An erased value is "[erased]". Raises `KeyLost` for a value whose key is
    neither there nor erased.
    """
    names = [
        name
        for name, column in zip(rows.column_names, rows.columns, strict=True)
        if (pa.types.is_string(column.type) or pa.types.is_large_string(column.type))
        and pc.any(pc.match_substring(column, MARK)).as_py()
    ]
    if not names:
        return rows
    store = KeyStore(keys_folder(log, keys))
    try:
        for name in names:
            place = rows.schema.get_field_index(name)
            values = [_revealed_text(store, text) for text in rows.column(place).to_pylist()]
            rows = rows.set_column(place, rows.schema.field(place), pa.array(values, rows.schema.field(place).type))
    finally:
        store.close()
    return rows


def _revealed_text(store: KeyStore, text: str | None) -> str | None:
    if text is None or MARK not in text:
        return text
    try:
        body = orjson.loads(text)
    except orjson.JSONDecodeError:
        return text
    value = _revealed(store, body)
    return value if isinstance(value, str) else orjson.dumps(value).decode()


# Any: JSON.
def _revealed(store: KeyStore, body: Any) -> Any:
    if is_encrypted(body):
        plain = store.decrypt(body, body[MARK][2])
        return ERASED if plain is None else orjson.loads(plain)
    if isinstance(body, dict):
        return {name: _revealed(store, each) for name, each in body.items()}
    if isinstance(body, list):
        return [_revealed(store, each) for each in body]
    return body
