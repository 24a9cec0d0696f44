"""Random documents, and random queries over the whole grammar: as a tree, in JSON, and as a query string."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from headwater.operators.percolate import Keyword, Text
from headwater.operators.percolate.query import QueryBuilder
from headwater.operators.percolate.query.fields import Fields, Kind, fields_of, stemmer
from headwater.operators.percolate.query.tree import All, Bool, Exists, GeoDistance, Nested, Nothing, Query
from tests.operators.percolate.naive import Naive

NOW = datetime(2026, 3, 31, 13, 45, 10, 250_000, tzinfo=UTC)
WORDS = ["stream", "streams", "Streaming", "java", "data", "flow", "flows", "märz", "x1", "the", "of", "sream"]
TAGS = ["red", "Red", "blue", "dark blue", "r2"]
SCHEMA = pa.schema(
    {
        "title": pa.string(),
        "body": pa.list_(pa.string()),
        "tags": pa.list_(pa.string()),
        "price": pa.float64(),
        "sizes": pa.list_(pa.int64()),
        "at": pa.timestamp("us", "UTC"),
        "fresh": pa.bool_(),
        "place": pa.struct({"lat": pa.float64(), "lon": pa.float64()}),
        "seller": pa.struct({"name": pa.string(), "stars": pa.int64()}),
        "notes": pa.list_(pa.struct({"by": pa.string(), "text": pa.string(), "stars": pa.int64()})),
    }
)
KINDS: dict[str, Kind] = {"title": Text("english", stop_words=("the", "of")), "tags": Keyword(), "notes.by": Keyword()}
FIELDS: Fields = fields_of(SCHEMA, KINDS, ("title", "body"))
BUILDER = QueryBuilder(FIELDS)
TEXTS = frozenset({"title", "body", "seller.name", "notes.text"})


def stemmed(word: str) -> str | None:
    return None if word in ("the", "of") else str(stemmer("english").stemWord(word))


@dataclass(frozen=True)
class Perfield(Naive):
    """Only titles are stemmed."""

    def _words(self, document: Any, field: str, prefix: str) -> Any:
        plain = replace(self, stem=stemmed if field == "title" else lambda word: word)
        return Naive._words(plain, document, field, prefix)


NAIVE = Perfield(texts=TEXTS, stem=stemmed, now=NOW)

# -- documents ----------------------------------------------------------------------------------------------------------

words = st.sampled_from(WORDS)
texts = st.lists(words, max_size=7).map(lambda some: ", ".join(some))
numbers = st.sampled_from([-2.0, 0.0, 1.0, 1.5, 2.0, 10.0])
stars = st.integers(0, 3)
times = st.one_of(
    st.sampled_from([0, 1, 24, 31 * 24, 400 * 24]).map(lambda hours: NOW - timedelta(hours=hours)),
    st.sampled_from([datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 3, 1, tzinfo=UTC), NOW + timedelta(days=40)]),
)
points = st.builds(
    lambda lat, lon: {"lat": lat, "lon": lon}, st.sampled_from([52.37, 52.0, -10.0]), st.sampled_from([4.9, 5.2])
)


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(st.none(), strategy, strategy, strategy)


documents = st.fixed_dictionaries(
    {
        "title": maybe(texts),
        "body": maybe(st.lists(maybe(texts), max_size=3)),
        "tags": maybe(st.lists(maybe(st.sampled_from(TAGS)), max_size=3)),
        "price": maybe(numbers),
        "sizes": maybe(st.lists(st.integers(0, 3), max_size=3)),
        "at": maybe(times),
        "fresh": maybe(st.booleans()),
        "place": maybe(points),
        "seller": maybe(st.fixed_dictionaries({"name": maybe(texts), "stars": maybe(stars)})),
        "notes": maybe(
            st.lists(
                st.fixed_dictionaries(
                    {"by": maybe(st.sampled_from(TAGS)), "text": maybe(texts), "stars": maybe(stars)}
                ),
                max_size=3,
            )
        ),
    }
)


def batch_of(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def now_us(count: int) -> Any:
    return np.full(count, (NOW - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1), np.float64)


# -- queries ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Written:
    """A query in all its forms; not every tree can be written as a string."""

    tree: Query
    json: dict[str, Any]
    string: str | None


def quoted(value: str) -> str:
    return value.replace(" ", "\\ ")


def leaf(field: str, prefix: str = "") -> st.SearchStrategy[Written]:  # noqa: ARG001
    kind = FIELDS.kinds[field]
    if isinstance(kind, Text):
        return st.one_of(
            worded(field), fuzzy(field), patterned(field, words.map(str.lower)), phrase(field), existing(field)
        )
    if isinstance(kind, Keyword):
        values = st.sampled_from(["true", "false"]) if field == "fresh" else st.sampled_from(TAGS)
        return st.one_of(exact(field, values), patterned(field, values), existing(field))
    if field == "place":
        return st.one_of(geo(field), existing(field))
    return st.one_of(ranged(field), existing(field))


def worded(field: str) -> st.SearchStrategy[Written]:
    def made(word: str) -> Written:
        return Written(BUILDER.match(field, word), {"match": {field: word}}, f"{field}:{word}")

    def several(some: list[str], operator: str) -> Written:
        return Written(
            BUILDER.match(field, " ".join(some), operator=operator),
            {"match": {field: {"query": " ".join(some), "operator": operator}}},
            f"{field}:({f' {operator.upper()} '.join(some)})",
        )

    return st.one_of(
        words.map(made), st.builds(several, st.lists(words, min_size=2, max_size=3), st.sampled_from(["or", "and"]))
    )


def exact(field: str, values: st.SearchStrategy[str]) -> st.SearchStrategy[Written]:
    return values.map(
        lambda value: Written(BUILDER.exactly(field, value), {"term": {field: value}}, f"{field}:{quoted(value)}")
    )


def phrase(field: str) -> st.SearchStrategy[Written]:
    def made(some: list[str], slop: int) -> Written:
        text = " ".join(some)
        body = {"match_phrase": {field: {"query": text, "slop": slop}}}
        return Written(BUILDER.phrase(field, text, slop), body, f'{field}:"{text}"~{slop}')

    return st.builds(made, st.lists(words, min_size=2, max_size=4), st.integers(0, 3))


def fuzzy(field: str) -> st.SearchStrategy[Written]:
    def made(word: str, distance: int) -> Written:
        body = {"fuzzy": {field: {"value": word, "fuzziness": distance}}}
        return Written(BUILDER.fuzzy(field, word, distance), body, f"{field}:{word}~{distance}")

    return st.builds(made, words.map(str.lower), st.integers(0, 2))


def patterned(field: str, values: st.SearchStrategy[str]) -> st.SearchStrategy[Written]:
    def prefixed(word: str, length: int) -> Written:
        start = word[:length]
        return Written(BUILDER.prefix(field, start), {"prefix": {field: start}}, f"{field}:{quoted(start)}*")

    def wild(word: str, place: int, sign: str) -> Written:
        pattern = word[:place] + sign + word[place + 1 :]
        told = quoted(pattern) if not pattern.endswith("*") or "?" in pattern else None
        string = f"{field}:{told}" if told is not None and pattern != "*" else None
        return Written(BUILDER.wildcard(field, quoted(pattern)), {"wildcard": {field: quoted(pattern)}}, string)

    def regular(word: str, place: int, part: str) -> Written:
        pattern = word[:place] + part + word[place + 1 :]
        return Written(BUILDER.regex(field, pattern), {"regexp": {field: pattern}}, f"{field}:/{pattern}/")

    def between(low: str, high: str) -> Written:
        body = {"range": {field: {"gte": low, "lt": high}}}
        return Written(BUILDER.range(field, gte=low, lt=high), body, f'{field}:["{low}" TO "{high}"}}')

    return st.one_of(
        st.builds(prefixed, values, st.integers(1, 4)),
        st.builds(wild, values, st.integers(0, 3), st.sampled_from("*?")),
        st.builds(regular, values, st.integers(0, 3), st.sampled_from([".", "[a-m]", "(?:s|t)?", ".*", "e+"])),
        st.builds(between, values, values),
    )


def existing(field: str) -> st.SearchStrategy[Written]:
    return st.just(Written(Exists(field), {"exists": {"field": field}}, f"_exists_:{field}"))


def ranged(field: str) -> st.SearchStrategy[Written]:
    bounds: st.SearchStrategy[Any] = st.sampled_from([-2.0, 0.0, 1.0, 1.5, 10.0])
    if field == "at":
        bounds = st.sampled_from(
            ["2026", "2026-03", "2026-03-31", "2026-03-31T13", "now", "now-1d", "now/d", "now-1M", "now/M", "now-1y/w",
             "2026-01-01||+2M/M", "now-31d"]
        )  # fmt: skip

    def made(low: Any, high: Any, low_open: bool, high_open: bool) -> Written:
        told = {
            **({} if low is None else {"gt" if low_open else "gte": low}),
            **({} if high is None else {"lt" if high_open else "lte": high}),
        }
        string = f"{field}:{'{' if low_open else '['}{'*' if low is None else low} TO {'*' if high is None else high}{'}' if high_open else ']'}"
        tree = BUILDER.range(field, **told) if told else Exists(field)
        return Written(tree, {"range": {field: told}}, string)

    def equal(value: Any) -> Written:
        return Written(BUILDER.exactly(field, value), {"term": {field: value}}, f'{field}:["{value}" TO "{value}"]')

    return st.one_of(
        st.builds(made, maybe(bounds), maybe(bounds), st.booleans(), st.booleans()),
        bounds.map(equal),
    )


def geo(field: str) -> st.SearchStrategy[Written]:
    def made(kilometres: int) -> Written:
        body = {"geo_distance": {"distance": f"{kilometres}km", field: {"lat": 52.3, "lon": 5.0}}}
        return Written(GeoDistance(field, 52.3, 5.0, kilometres * 1000.0), body, None)

    return st.sampled_from([1, 12, 40, 9000]).map(made)


NESTED_FIELDS = ("notes.by", "notes.text", "notes.stars")
leaves = st.sampled_from(sorted(FIELDS.kinds)).flatmap(leaf)
everything = st.just(Written(All(), {"match_all": {}}, "*:*"))
whole_paths = st.sampled_from(["seller", "notes"]).flatmap(existing)


def combined(parts: st.SearchStrategy[Written]) -> st.SearchStrategy[Written]:
    some = st.lists(parts, max_size=3)

    def made(
        must: list[Written],
        should: list[Written],
        without: list[Written],
        kept: list[Written],
        least: int | None,
        boost: float,
    ) -> Written:
        tree = Bool(
            tuple(one.tree for one in must), tuple(one.tree for one in should), tuple(one.tree for one in without),
            tuple(one.tree for one in kept), least, boost,
        )  # fmt: skip
        lists = {"must": must, "should": should, "must_not": without, "filter": kept}
        body: dict[str, Any] = {name: [one.json for one in held] for name, held in lists.items()}
        body |= {"boost": boost} | ({} if least is None else {"minimum_should_match": least})
        return Written(tree, {"bool": body}, _as_string(must, should, without, kept, least, boost))

    return st.builds(
        made,
        some,
        some,
        some,
        st.one_of(st.just([]), some),
        st.one_of(st.none(), st.integers(0, 3)),
        st.sampled_from([1.0, 2.0, 0.5]),
    )


def _as_string(
    must: list[Written],
    should: list[Written],
    without: list[Written],
    kept: list[Written],
    least: int | None,
    boost: float,
) -> str | None:
    everyone = [*must, *should, *without]
    if kept or least is not None or not everyone or any(_is_unsayable(one) for one in everyone):
        return None
    signed: list[tuple[str, Written]] = [
        *(("+", one) for one in must),
        *(("", one) for one in should),
        *(("-", one) for one in without),
    ]
    return f"({' '.join(f'{sign}({one.string})' for sign, one in signed)})^{boost}"


def _is_unsayable(one: Written) -> bool:
    return one.string is None or isinstance(one.tree, Nothing)


def nested(parts: st.SearchStrategy[Written]) -> st.SearchStrategy[Written]:
    return parts.map(
        lambda one: Written(Nested("notes", one.tree), {"nested": {"path": "notes", "query": one.json}}, None)
    )


inner_leaves = st.sampled_from(NESTED_FIELDS).flatmap(leaf)
in_elements = st.one_of(inner_leaves, combined(inner_leaves))
_any_leaf = st.one_of(leaves, leaves, leaves, everything, whole_paths, nested(in_elements))
queries: st.SearchStrategy[Written] = st.recursive(_any_leaf, combined, max_leaves=8)
