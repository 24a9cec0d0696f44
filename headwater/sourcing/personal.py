"""Personal fields of events: encrypted with the key of the person they are about."""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from headwater.sourcing.codec import Misfit, dump, reader
from headwater.sourcing.errors import DeciderInvalid
from headwater.sourcing.keys import KeyStore, is_encrypted

ERASED = "[erased]"
_MISSING = object()


@dataclass(frozen=True, kw_only=True)
class Personal:
    """Marks a field of an event as personal: `name: Annotated[str, Personal()]`.

    The subject is the entity, or the value of another field: `Personal(subject="customer")`. What stands in the place of
    an erased value is "[erased]" for text and None for what may be None; other types need `erased`.
    """

    subject: str | None = None
    # Any: a value of the field's type.
    erased: Any = _MISSING


class _Field(NamedTuple):
    name: str
    subject: str | None
    # Any: JSON.
    erased: Any


class PersonalFields:
    """The personal fields of a decider's events."""

    def __init__(self, kinds: Iterable[type]) -> None:
        found = {kind.__name__: tuple(_fields(kind)) for kind in kinds}
        self._fields: Mapping[str, tuple[_Field, ...]] = {name: fields for name, fields in found.items() if fields}

    def __bool__(self) -> bool:
        return bool(self._fields)

    # Any: an event of the user's class.
    def write(self, keys: KeyStore, entity: str, name: str, event: Any) -> bytes:
        """The JSON of an event, with its personal fields encrypted."""
        data = dump(event)
        fields = self._fields.get(name)
        if fields is None:
            return data
        body = orjson.loads(data)
        for field in fields:
            subject = entity if field.subject is None else getattr(event, field.subject)
            if not isinstance(subject, str) or not subject:
                raise DeciderInvalid(what=f"event {name}", why=f"has no text in {field.subject!r}, its subject")
            body[field.name] = keys.encrypt(subject, orjson.dumps(body[field.name]), name)
        return orjson.dumps(body)

    # Any: the JSON of an event.
    def hide(self, name: str, body: dict[str, Any], instead: str) -> None:
        """Put a text in the place of the personal fields of an event."""
        body.update(dict.fromkeys((field.name for field in self._fields.get(name, ())), instead))

    # Any: the JSON of an event.
    def reveal(self, keys: KeyStore | None, name: str, body: dict[str, Any]) -> None:
        """Decrypt the personal fields of an event in place; without keys they are as if they were erased."""
        for field in self._fields.get(name, ()):
            value = body.get(field.name)
            if is_encrypted(value):
                plain = None if keys is None else keys.decrypt(value, name)
                body[field.name] = field.erased if plain is None else orjson.loads(plain)


def _fields(kind: type) -> Iterable[_Field]:
    names = set(hints := typing.get_type_hints(kind, include_extras=True))
    for name, hint in hints.items():
        marks = [each for each in getattr(hint, "__metadata__", ()) if isinstance(each, Personal)]
        if marks:
            if marks[0].subject is not None and marks[0].subject not in names:
                raise DeciderInvalid(
                    what=f"{kind.__name__}.{name}", why=f"has an unknown field {marks[0].subject!r} as subject"
                )
            yield _Field(name, marks[0].subject, _erased(f"{kind.__name__}.{name}", reader(hint), marks[0]))


# Any: JSON.
def _erased(where: str, read: Callable[[Any], Any], mark: Personal) -> Any:
    """What stands in the place of an erased value."""
    candidates = [None, ERASED] if mark.erased is _MISSING else [orjson.loads(dump(mark.erased))]
    for each in candidates:
        try:
            read(each)
        except Misfit:
            continue
        return each
    raise DeciderInvalid(what=f"{where}, a personal field,", why="needs `Personal(erased=…)` of its type")
