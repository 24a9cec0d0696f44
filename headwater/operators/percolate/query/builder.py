"""Build the leaves of queries from what was written, by the kind of their field: both languages share this."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NoReturn

from headwater.operators.errors import QueryInvalid
from headwater.operators.percolate.query.fields import (
    Date,
    Fields,
    Geo,
    Ip,
    Keyword,
    Kind,
    Number,
    Text,
    address_bits,
    network_bits,
)
from headwater.operators.percolate.query.tree import (
    All,
    Bool,
    Exists,
    Fuzzy,
    Moment,
    Nested,
    Nothing,
    Phrase,
    Prefix,
    Query,
    Range,
    Regex,
    Term,
    Wildcard,
    parse_moment,
)
from headwater.optional import require

#: A query with more leaves than this is invalid, as in Elasticsearch.
LEAVES_MAX = 1024
DEPTH_MAX = 50
PATTERN_LENGTH_MAX = 1000
#: What RE2 may spend on one regular expression.
REGEX_MEMORY_BYTES_MAX = 1 << 20


class LeafInvalid(Exception):
    """What is wrong with a leaf, before it is known where that leaf stands."""


@dataclass(frozen=True)
class QueryBuilder:
    """Makes leaves for documents with these fields."""

    fields: Fields

    def kind(self, name: str) -> Kind:
        found = self.fields.kinds.get(name)
        if found is None:
            if name in self.fields.prefixes:
                raise LeafInvalid(f"{name!r} has fields of its own: {', '.join(self.fields.below(name))}")
            raise LeafInvalid(f"there is no field {name!r}{self.fields.near(name)}")
        return found

    def match(self, name: str, text: str, *, operator: str = "or", least: int | str | None = None) -> Query:
        """The words of a text, any or all of them, by the analysis of the field."""
        kind = self.kind(name)
        if not isinstance(kind, Text):
            return self.exactly(name, text)
        terms: list[Query] = [Term(name, term) for term in kind.analyzer.terms(text) if term is not None]
        return combined(terms, operator=operator, least=least)

    def phrase(self, name: str, text: str, slop: int = 0) -> Query:
        kind = self.kind(name)
        if not isinstance(kind, Text):
            return self.exactly(name, text)
        words = tuple((place, term) for place, term in enumerate(kind.analyzer.terms(text)) if term is not None)
        if not words:
            return Nothing()
        first = words[0][0]
        if len(words) == 1:
            return Term(name, words[0][1])
        if len(words) > LEAVES_MAX or slop > 1000 or slop < 0:
            raise LeafInvalid("a phrase has at most 1024 words, and a slop between 0 and 1000")
        return Phrase(name, tuple((place - first, term) for place, term in words), slop)

    def exactly(self, name: str, value: Any) -> Query:
        """One value as it is: a term that is not analysed, or a number or a date that is equal."""
        kind = self.kind(name)
        if isinstance(kind, Text | Keyword):
            return Term(name, text_of(value))
        if isinstance(kind, Geo):
            raise LeafInvalid(f"{name!r} holds points, which only a geo_distance asks for")
        if isinstance(kind, Ip):
            network = network_bits(text_of(value)) if "/" in text_of(value) else None
            return Term(name, bits_of(value)) if network is None else Prefix(name, network)
        return self.range(name, gte=value, lte=value)

    def range(self, name: str, **bounds: Any) -> Query:
        kind = self.kind(name)
        given = {side: self._bound(kind, name, side, value) for side, value in bounds.items() if value is not None}
        return Range(name, given.get("gt"), given.get("gte"), given.get("lt"), given.get("lte"))

    def _bound(self, kind: Kind, name: str, side: str, value: Any) -> float | str | Moment:
        if isinstance(kind, Number):
            return number_of(value, name)
        if isinstance(kind, Date):
            # `gt` begins behind the whole of a date, `lte` has all of it.
            return moment_of(value, end=side in ("gt", "lte"))
        if isinstance(kind, Geo):
            raise LeafInvalid(f"{name!r} holds points, which have no range")
        return bits_of(value) if isinstance(kind, Ip) else text_of(value)

    def exists(self, name: str) -> Query:
        if name not in self.fields.prefixes:
            raise LeafInvalid(f"there is no field {name!r}{self.fields.near(name)}")
        return Exists(name)

    def prefix(self, name: str, value: str) -> Query:
        self._words(name, "a prefix")
        return Prefix(name, _short(value))

    def wildcard(self, name: str, pattern: str) -> Query:
        self._words(name, "a wildcard")
        return Wildcard(name, _short(pattern))

    def fuzzy(self, name: str, value: str, fuzziness: Any = "AUTO", prefix_length: int = 0) -> Query:
        self._words(name, "a fuzzy word")
        require("rapidfuzz", extra="search")
        distance = distance_of(fuzziness, value)
        if not isinstance(prefix_length, int) or prefix_length < 0:
            raise LeafInvalid(f"the prefix length {prefix_length!r} is no number from 0 on")
        return Fuzzy(name, _short(value), distance, prefix_length)

    def regex(self, name: str, pattern: str) -> Query:
        self._words(name, "a regular expression")
        regex_of(_short(pattern))
        return Regex(name, pattern)

    def nested(self, path: str, query: Query) -> Query:
        """What is true of one element; it sees nothing but the element."""
        if path not in self.fields.nested:
            lists = ", ".join(sorted(self.fields.nested)) or "none"
            raise LeafInvalid(f"{path!r} is no list of structs; these are: {lists}")
        for field in fields_in(query):
            if not field.startswith(f"{path}."):
                raise LeafInvalid(f"{field!r} does not belong to the elements of {path!r}")
        return Nested(path, query)

    def _words(self, name: str, what: str) -> None:
        if not isinstance(self.kind(name), Text | Keyword):
            raise LeafInvalid(f"{name!r} has no words that {what} could fit")

    @cached_property
    def lowered(self) -> frozenset[str]:
        """The fields whose words are in lower case."""
        kinds = self.fields.kinds.items()
        return frozenset(name for name, kind in kinds if isinstance(kind, Text) and not kind.keep_case)


def combined(queries: list[Query], *, operator: str = "or", least: int | str | None = None) -> Query:
    """Any or all of some queries; nothing of none."""
    if not queries:
        return Nothing()
    if len(queries) == 1:
        return queries[0]
    if operator == "and":
        return Bool(must=tuple(queries))
    return Bool(should=tuple(queries), minimum_should_match=least_of(least, len(queries)))


def least_of(given: int | str | None, count: int) -> int | None:
    """How many of `count` must be true: `2`, `-1` (all but one), `"75%"`, `"-25%"`.

    >>> least_of("75%", 4), least_of(-1, 4), least_of("-30%", 4), least_of(None, 4)
    (3, 3, 3, None)
    """
    if given is None:
        return None
    text = str(given).strip()
    share = text.endswith("%")
    try:
        number = int(text.removesuffix("%"))
    except ValueError:
        raise LeafInvalid(f"{given!r} is no `minimum_should_match` such as 2, -1 or 75%") from None
    if share:
        part = abs(number) * count // 100
        number = part if number >= 0 else -part
    # "-0%" leaves none out.
    found = number if not text.startswith("-") else count + number
    return max(0, found)


def distance_of(fuzziness: Any, value: str) -> int:
    """How many characters may differ: 0, 1, 2, or by the length of the word."""
    text = str(fuzziness).upper()
    if text == "AUTO":
        return 0 if len(value) < 3 else 1 if len(value) < 6 else 2
    if text not in ("0", "1", "2"):
        raise LeafInvalid(f"{fuzziness!r} is no distance: 0, 1, 2 or AUTO")
    return int(text)


def regex_of(pattern: str) -> Any:
    """A compiled expression that matches in linear time and bounded memory. Any: RE2 has no types."""
    require("re2", extra="search")
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = REGEX_MEMORY_BYTES_MAX
    options.never_capture = True
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        why = error.args[0].decode() if isinstance(error.args[0], bytes) else str(error.args[0])
        raise LeafInvalid(f"the regular expression is invalid: {why}") from None


def number_of(value: Any, name: str) -> float:
    try:
        found = float(value)
    except (TypeError, ValueError, OverflowError):
        found = float("nan")
    if isinstance(value, bool) or found != found:
        raise LeafInvalid(f"{value!r} is no number, as {name!r} has them")
    return found


def moment_of(value: Any, *, end: bool) -> float | Moment:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return int(value * 1000)  # milliseconds, as Elasticsearch takes numbers for dates
    try:
        return parse_moment(str(value), end=end)
    except (ValueError, OverflowError) as error:
        raise LeafInvalid(str(error)) from None


def text_of(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str | int | float):
        raise LeafInvalid(f"{value!r} is no word")
    return str(value)


def bits_of(value: Any) -> str:
    """The bits of an IP address, by which it is found."""
    bits = address_bits(text_of(value))
    if bits is None:
        raise LeafInvalid(
            f"{value!r} is no IP address such as 10.0.0.1 or 2001:db8::1, nor a network such as 10.0.0.0/8"
        )
    return bits


def boosted(query: Query, boost: float) -> Query:
    if isinstance(query, Nothing) or boost == 1.0:
        return query
    return replace(query, boost=query.boost * boost)


def boost_of(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1e6:
        raise LeafInvalid(f"{value!r} is no boost: a number from 0 to a million")
    return float(value)


def raise_invalid(query: str, position: str, why: str) -> NoReturn:
    raise QueryInvalid(query=query, position=position, why=why)


def _short(pattern: str) -> str:
    if not pattern or len(pattern) > PATTERN_LENGTH_MAX:
        raise LeafInvalid(f"a pattern has 1 to {PATTERN_LENGTH_MAX} characters")
    return pattern


def parts_of(query: Query) -> list[Query]:
    """A query and everything inside of it."""
    found, waiting = [], [query]
    while waiting:
        one = waiting.pop()
        found.append(one)
        if isinstance(one, Bool):
            waiting += (*one.must, *one.should, *one.must_not, *one.filter)
        elif isinstance(one, Nested):
            waiting.append(one.query)
    return found


def fields_in(query: Query) -> list[str]:
    """The fields that a query asks about."""
    return [one.field for one in parts_of(query) if not isinstance(one, All | Nothing | Bool | Nested)]


def check_size(query: Query) -> None:
    """Raise if a query has too many leaves."""
    count = len(parts_of(query))
    if count > LEAVES_MAX:
        raise LeafInvalid(f"it has {count} clauses, more than {LEAVES_MAX}")
