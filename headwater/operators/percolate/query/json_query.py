"""Queries as JSON in Elasticsearch's form. What is wrong is said with the path that leads to it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, cast

from headwater.operators.errors import QueryInvalid
from headwater.operators.percolate.query.builder import (
    DEPTH_MAX,
    LeafInvalid,
    QueryBuilder,
    boost_of,
    boosted,
    check_size,
    combined,
    least_of,
    raise_invalid,
)
from headwater.operators.percolate.query.fields import Geo, Text
from headwater.operators.percolate.query.query_string import Operator, parse_string
from headwater.operators.percolate.query.tree import All, Bool, GeoDistance, Nothing, Query

# Any: a value of JSON.
Json = Any
_METRES = {"m": 1.0, "km": 1000.0, "mi": 1609.344, "yd": 0.9144, "ft": 0.3048, "nmi": 1852.0, "cm": 0.01}
_OF_ONE_FIELD = frozenset(("term", "match", "match_phrase", "prefix", "wildcard", "fuzzy", "regexp", "range"))
_DISTANCE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*$")


def parse_json(query: str | Mapping[str, Json], builder: QueryBuilder) -> Query:
    """Read a query in JSON, as text or as the object itself.

    >>> from headwater.operators.percolate.query.fields import Fields, Number, Text
    >>> builder = QueryBuilder(Fields({"title": Text(), "price": Number()}))
    >>> parse_json('{"range": {"price": {"gte": 10, "lt": 20}}}', builder)
    Range(field='price', gt=None, gte=10.0, lt=20.0, lte=None, boost=1.0)
    >>> parse_json({"bool": {"must": [{"term": {"titel": "x"}}]}}, builder)
    Traceback (most recent call last):
    headwater.operators.errors.QueryInvalid: The query '{"bool": {"must": [{"term": {"titel": "x"}}]}}' cannot be used, at bool.must[0].term.titel: there is no field 'titel'; did you mean 'title'? Correct it there; `docs/reference/operators/percolate-queries.md` shows what may be written.
    """
    text = query if isinstance(query, str) else json.dumps(query)
    try:
        body = json.loads(query) if isinstance(query, str) else query
    except (ValueError, RecursionError) as error:
        where = f"line {error.lineno} column {error.colno}" if isinstance(error, json.JSONDecodeError) else "its depth"
        raise_invalid(text, where, f"this is no JSON: {getattr(error, 'msg', error)}")
    if isinstance(body, Mapping) and set(body) == {"query"}:
        body = body["query"]
    try:
        found = _Reader(builder).query(body, "", 0)
        check_size(found)
    except _Misplaced as wrong:
        raise_invalid(text, wrong.path or "its beginning", wrong.why)
    except LeafInvalid as wrong:
        raise_invalid(text, "its beginning", str(wrong))
    return found


class _Misplaced(Exception):
    def __init__(self, path: str, why: str) -> None:
        super().__init__(why)
        self.path, self.why = path.lstrip("."), why


class _Reader:
    def __init__(self, builder: QueryBuilder) -> None:
        self._make = builder
        self._depth = 0
        self._kinds: dict[str, Callable[[Json, str], Query]] = {
            "match_all": self._match_all, "match_none": self._match_none, "term": self._of_value(builder.exactly),
            "terms": self._terms, "match": self._match, "match_phrase": self._match_phrase,
            "multi_match": self._multi_match, "prefix": self._of_value(builder.prefix, text=True),
            "wildcard": self._of_value(builder.wildcard, text=True), "fuzzy": self._fuzzy,
            "regexp": self._of_value(builder.regex, text=True), "range": self._range, "exists": self._exists,
            "bool": self._bool, "nested": self._nested, "geo_distance": self._geo_distance,
            "query_string": self._query_string, "constant_score": self._constant_score,
        }  # fmt: skip

    def query(self, body: Json, path: str, depth: int) -> Query:
        if depth > DEPTH_MAX:
            raise _Misplaced(path, f"it is more than {DEPTH_MAX} deep")
        if not isinstance(body, Mapping) or len(body) != 1:
            raise _Misplaced(path, 'a query is an object with one name, such as {"match": …}')
        name = next(iter(body))
        if name not in self._kinds:
            raise _Misplaced(path, f"there is no query {name!r}; there are {', '.join(self._kinds)}")
        before, self._depth = self._depth, depth
        try:
            return self._kinds[name](body[name], f"{path}.{name}")
        except LeafInvalid as wrong:
            about = body[name]
            field = f".{next(iter(about))}" if name in _OF_ONE_FIELD and isinstance(about, Mapping) and about else ""
            raise _Misplaced(f"{path}.{name}{field}", str(wrong)) from None
        finally:
            self._depth = before

    # -- leaves -------------------------------------------------------------------------------------------------------

    def _match_all(self, body: Json, path: str) -> Query:
        return boosted(All(), boost_of(_settings(body, path, ("boost",)).get("boost", 1.0)))

    def _match_none(self, body: Json, path: str) -> Query:
        _settings(body, path, ("boost",))
        return Nothing()

    def _of_value(self, make: Callable[[str, Json], Query], *, text: bool = False) -> Callable[[Json, str], Query]:
        """Leaves that are about one value of one field; with `text`, the value as text."""

        def read(body: Json, path: str) -> Query:
            name, found = _about(body, path, "value", ("boost",))
            return boosted(
                make(name, str(found["value"]) if text else found["value"]), boost_of(found.get("boost", 1.0))
            )

        return read

    def _terms(self, body: Json, path: str) -> Query:
        given = dict(_settings(body, path, None))
        boost = boost_of(given.pop("boost", 1.0))
        if len(given) != 1 or not isinstance(values := next(iter(given.values())), list):
            raise _Misplaced(path, 'it takes one field and a list: {"colour": ["red", "blue"]}')
        name = next(iter(given))
        return boosted(combined([self._make.exactly(name, value) for value in values]), boost)

    def _match(self, body: Json, path: str) -> Query:
        name, found = _about(
            body, path, "query", ("boost", "operator", "fuzziness", "minimum_should_match", "prefix_length")
        )
        return boosted(self._matched(name, found), boost_of(found.get("boost", 1.0)))

    def _matched(self, name: str, found: Mapping[str, Json]) -> Query:
        operator = _operator(found.get("operator", "or"))
        least = found.get("minimum_should_match")
        kind = self._make.kind(name)
        if not isinstance(kind, Text):
            return self._make.exactly(name, found["query"])
        text = str(found["query"])
        if "fuzziness" not in found:
            return self._make.match(name, text, operator=operator, least=least)
        words = kind.analyzer.words(text)
        length = found.get("prefix_length", 0)
        return combined(
            [self._make.fuzzy(name, word, found["fuzziness"], length) for word in words], operator=operator, least=least
        )

    def _match_phrase(self, body: Json, path: str) -> Query:
        name, found = _about(body, path, "query", ("boost", "slop"))
        slop = found.get("slop", 0)
        if not isinstance(slop, int):
            raise _Misplaced(f"{path}.{name}.slop", f"{slop!r} is no whole number")
        return boosted(self._make.phrase(name, str(found["query"]), slop), boost_of(found.get("boost", 1.0)))

    def _multi_match(self, body: Json, path: str) -> Query:
        allowed = (
            "query", "fields", "operator", "fuzziness", "minimum_should_match", "boost", "type", "slop", "prefix_length",
        )  # fmt: skip
        found = _settings(body, path, allowed, needed=("query",))
        names = found.get("fields", list(self._make.fields.default))
        if not isinstance(names, list) or not names:
            raise _Misplaced(f"{path}.fields", "it takes a list of fields")
        kind = found.get("type", "best_fields")
        if kind not in (kinds := ("best_fields", "most_fields", "phrase")):
            raise _Misplaced(f"{path}.type", f"{kind!r} is none of {', '.join(kinds)}")
        queries = []
        for given in names:
            name, _, boost = str(given).partition("^")
            if kind == "phrase":
                one = self._make.phrase(name, str(found["query"]), found.get("slop", 0))
            else:
                one = self._matched(name, found)
            queries.append(boosted(one, boost_of(_number(boost or "1", f"{path}.fields"))))
        return boosted(combined(queries), boost_of(found.get("boost", 1.0)))

    def _fuzzy(self, body: Json, path: str) -> Query:
        name, found = _about(body, path, "value", ("boost", "fuzziness", "prefix_length"))
        word = str(found["value"])
        query = self._make.fuzzy(name, word, found.get("fuzziness", "AUTO"), found.get("prefix_length", 0))
        return boosted(query, boost_of(found.get("boost", 1.0)))

    def _range(self, body: Json, path: str) -> Query:
        sides = ("gt", "gte", "lt", "lte")
        name, found = _about(body, path, None, (*sides, "boost"))
        bounds = {side: found[side] for side in sides if found.get(side) is not None}
        if {"gt", "gte"} <= set(bounds) or {"lt", "lte"} <= set(bounds):
            raise _Misplaced(f"{path}.{name}", "one bound on each side is enough")
        query = self._make.range(name, **bounds) if bounds else self._make.exists(name)
        return boosted(query, boost_of(found.get("boost", 1.0)))

    def _exists(self, body: Json, path: str) -> Query:
        found = _settings(body, path, ("field", "boost"), needed=("field",))
        return boosted(self._make.exists(str(found["field"])), boost_of(found.get("boost", 1.0)))

    def _geo_distance(self, body: Json, path: str) -> Query:
        given = dict(_settings(body, path, None))
        boost = boost_of(given.pop("boost", 1.0))
        metres = _metres(given.pop("distance", None), f"{path}.distance")
        if len(given) != 1:
            raise _Misplaced(path, "it takes `distance` and one field with a point")
        name, point = next(iter(given.items()))
        if not isinstance(self._make.kind(name), Geo):
            raise _Misplaced(path, f"{name!r} holds no points")
        latitude, longitude = _point(point, f"{path}.{name}")
        return GeoDistance(name, latitude, longitude, metres, boost)

    def _query_string(self, body: Json, path: str) -> Query:
        allowed = ("query", "fields", "default_field", "default_operator", "boost")
        found = _settings(body, path, allowed, needed=("query",))
        default = found.get("fields") or ([found["default_field"]] if "default_field" in found else None)
        names = None if default is None else tuple(str(name) for name in default)
        operator = cast(Operator, _operator(found.get("default_operator", "or")))
        try:
            query = parse_string(str(found["query"]), self._make, default=names, operator=operator)
        except QueryInvalid as error:
            raise _Misplaced(f"{path}.query, {error.position}", error.why) from None
        return boosted(query, boost_of(found.get("boost", 1.0)))

    # -- what holds other queries -------------------------------------------------------------------------------------

    def _bool(self, body: Json, path: str) -> Query:
        parts = ("must", "should", "must_not", "filter")
        found = _settings(body, path, (*parts, "minimum_should_match", "boost"))
        held = {part: self._list(found.get(part, []), f"{path}.{part}") for part in parts}
        least = least_of(found.get("minimum_should_match"), len(held["should"]))
        return Bool(**held, minimum_should_match=least, boost=boost_of(found.get("boost", 1.0)))

    def _list(self, body: Json, path: str) -> tuple[Query, ...]:
        if isinstance(body, Mapping):
            return (self.query(body, path, self._depth + 1),)
        if not isinstance(body, list):
            raise _Misplaced(path, "a query, or a list of them, is expected")
        return tuple(self.query(one, f"{path}[{number}]", self._depth + 1) for number, one in enumerate(body))

    def _nested(self, body: Json, path: str) -> Query:
        found = _settings(body, path, ("path", "query", "boost", "score_mode"), needed=("path", "query"))
        inner = self.query(found["query"], f"{path}.query", self._depth + 1)
        return boosted(self._make.nested(str(found["path"]), inner), boost_of(found.get("boost", 1.0)))

    def _constant_score(self, body: Json, path: str) -> Query:
        found = _settings(body, path, ("filter", "boost"), needed=("filter",))
        inner = self.query(found["filter"], f"{path}.filter", self._depth + 1)
        return Bool(must=(boosted(All(), boost_of(found.get("boost", 1.0))),), filter=(inner,))


def _settings(
    body: Json, path: str, allowed: tuple[str, ...] | None, needed: tuple[str, ...] = ()
) -> Mapping[str, Json]:
    if not isinstance(body, Mapping):
        raise _Misplaced(path, "an object is expected")
    for name in body:
        if allowed is not None and name not in allowed:
            raise _Misplaced(f"{path}.{name}", f"it is not known here; there are {', '.join(allowed)}")
    for name in needed:
        if name not in body:
            raise _Misplaced(path, f"{name!r} is missing")
    return body


def _about(body: Json, path: str, main: str | None, others: tuple[str, ...]) -> tuple[str, Mapping[str, Json]]:
    """The one field that a leaf is about, and what is said of it; a bare value stands for its main setting."""
    if not isinstance(body, Mapping) or len(body) != 1:
        raise _Misplaced(path, "it takes one field")
    name, said = next(iter(body.items()))
    if main is not None and not isinstance(said, Mapping):
        if isinstance(said, list) or said is None:
            raise _Misplaced(f"{path}.{name}", "one value is expected")
        return name, {main: said}
    allowed = others if main is None else (main, *others)
    return name, _settings(said, f"{path}.{name}", allowed, needed=() if main is None else (main,))


def _operator(given: Json) -> str:
    if not isinstance(given, str) or given.lower() not in ("or", "and"):
        raise LeafInvalid(f'{given!r} is no operator: "or" or "and"')
    return given.lower()


def _number(given: str, path: str) -> float:
    try:
        return float(given)
    except ValueError:
        raise _Misplaced(path, f"{given!r} is no number") from None


def _metres(given: Json, path: str) -> float:
    if isinstance(given, int | float) and not isinstance(given, bool) and given >= 0:
        return float(given)
    found = _DISTANCE.match(given) if isinstance(given, str) else None
    if found is None or (found[2] or "m") not in _METRES:
        raise _Misplaced(path, f"{given!r} is no distance such as 12km; units are {', '.join(_METRES)}")
    return float(found[1]) * _METRES[found[2] or "m"]


def _point(given: Json, path: str) -> tuple[float, float]:
    """An object with lat and lon, a text "lat,lon", or a list [lon, lat]."""
    try:
        if isinstance(given, Mapping):
            latitude, longitude = float(given["lat"]), float(given["lon"])
        elif isinstance(given, str):
            latitude, longitude = (float(part) for part in given.split(","))
        else:
            longitude, latitude = (float(part) for part in given)
    except (KeyError, TypeError, ValueError):
        raise _Misplaced(path, f'{given!r} is no point such as {{"lat": 52.4, "lon": 4.9}}') from None
    if not (-90 <= latitude <= 90 and -180 <= longitude <= 180):
        raise _Misplaced(path, f"{given!r} does not lie on the Earth")
    return latitude, longitude
