"""The query string that people write: `title:"stream processing" AND price:[10 TO 20] -java`.

    query  := group+                     words side by side: any of them (or all, by `default_operator`)
    group  := chain (OR chain)*
    chain  := clause (AND clause)*
    clause := (+ | - | NOT)* atom (^boost)?
    atom   := (field:)? ( word | "phrase" | /regex/ | [from TO to] | >= bound | "(" query ")" )

NOT binds tighter than AND, AND than OR, and OR than words side by side. A word may have `*` and `?`, or end in `~`.
"""

from __future__ import annotations

import re
from typing import Any, Literal, NamedTuple

from headwater.operators.percolate.query.builder import (
    DEPTH_MAX,
    LeafInvalid,
    QueryBuilder,
    boost_of,
    boosted,
    check_size,
    combined,
    raise_invalid,
)
from headwater.operators.percolate.query.tree import All, Bool, Nothing, Query

_FIRST = r'(?:[^\s+\-!(){}\[\]^"~:\\/<>=&|]|\\.)'
_NEXT = r'(?:[^\s!(){}\[\]^"~:\\]|\\.)'
_BOUND = r'(?:"(?:[^"\\]|\\.)*"|(?:[^\s"\]}\\]|\\.)+)'
_TOKEN = re.compile(
    rf"""\s*(?:
    (?P<and>(?:AND(?=[\s(]|$)|&&))|(?P<or>(?:OR(?=[\s(]|$)|\|\|))|(?P<not>(?:NOT(?=[\s(]|$)|!))
    |(?P<field>(?:{_FIRST}(?:[^\s+!()\{{\}}\[\]^"~*?:\\/]|\\.)*)(?=:)|\*(?=:)):
    |(?P<word>{_FIRST}{_NEXT}*)
    |"(?P<phrase>(?:[^"\\]|\\.)*)"
    |/(?P<regex>(?:[^/\\]|\\.)*)/
    |(?P<open>[\[{{])\s*(?P<from>{_BOUND})\s+TO\s+(?P<to>{_BOUND})\s*(?P<close>[\]}}])
    |(?P<compare>[<>]=?)\s*(?P<limit>{_BOUND})
    |(?P<left>\()|(?P<right>\))|(?P<plus>\+)|(?P<minus>-)
    |\^(?P<boost>\d+(?:\.\d+)?)
    |~(?P<tilde>\d*)
    )""",
    re.VERBOSE,
)
_ESCAPED = re.compile(r"\\(.)")
_UNESCAPED_WILD = re.compile(r"(?<!\\)(?:\\\\)*[*?]")
Operator = Literal["or", "and"]


class Token(NamedTuple):
    kind: str
    text: str
    start: int
    end: int
    found: re.Match[str] | None


class Signed(NamedTuple):
    """A clause and what stands before it."""

    query: Query
    sign: str
    at: int


def parse_string(
    text: str, builder: QueryBuilder, *, default: tuple[str, ...] | None = None, operator: Operator = "or"
) -> Query:
    """Read a query string for documents with the fields that `builder` knows.

    >>> from headwater.operators.percolate.query.fields import Fields, Number, Text
    >>> builder = QueryBuilder(Fields({"title": Text(), "price": Number()}, default=("title",)))
    >>> parse_string("streams -java", builder)
    Bool(must=(), should=(Term(field='title', value='streams', boost=1.0),), must_not=(Term(field='title', value='java', boost=1.0),), filter=(), minimum_should_match=None, boost=1.0)
    >>> parse_string("price:[10 TO", builder)
    Traceback (most recent call last):
    headwater.operators.errors.QueryInvalid: The query 'price:[10 TO' cannot be used, at column 7: this is not understood: '[10 TO'. Correct it there; `docs/reference/operators/percolate-queries.md` shows what may be written.
    """
    return _Parser(text, builder, builder.fields.default if default is None else default, operator).parse()


def _tokens(text: str) -> list[Token]:
    tokens: list[Token] = []
    place, end = 0, len(text.rstrip())
    while place < end:
        found = _TOKEN.match(text, place)
        if found is None or found.lastgroup is None:
            start = place + len(text[place:]) - len(text[place:].lstrip())
            raise_invalid(text, f"column {start + 1}", f"this is not understood: {text[start : start + 20]!r}")
        kind = found.lastgroup
        start = found.start() + len(found[0]) - len(found[0].lstrip())
        tokens.append(Token(kind, found[kind], start, found.end(), found))
        place = found.end()
    tokens.append(Token("end", "", len(text), len(text), None))
    return tokens


class _Parser:
    def __init__(self, text: str, builder: QueryBuilder, default: tuple[str, ...], operator: Operator) -> None:
        self._text = text
        self._make = builder
        self._default = default
        self._operator = operator
        self._tokens = _tokens(text)
        self._place = 0
        self._depth = 0

    def parse(self) -> Query:
        if self._peek().kind == "end":
            raise_invalid(self._text, "column 1", "it is empty; `*:*` asks for every document")
        query = self._query(None)
        if self._peek().kind != "end":
            self._raise_invalid(self._peek(), "a bracket is closed that was never opened")
        try:
            check_size(query)
        except LeafInvalid as wrong:
            raise_invalid(self._text, "column 1", str(wrong))
        return query

    # -- clauses ------------------------------------------------------------------------------------------------------

    def _query(self, field: str | None) -> Query:
        groups: list[Signed] = []
        while self._peek().kind not in ("end", "right"):
            groups.append(self._group(field))
        if not groups:
            self._raise_invalid(self._peek(), "here something is missing")
        return self._joined(groups)

    def _joined(self, groups: list[Signed]) -> Query:
        groups = [one for one in groups if not isinstance(one.query, Nothing)]
        plain = [one.query for one in groups if not one.sign]
        must = [one.query for one in groups if one.sign == "+"]
        without = [one.query for one in groups if one.sign == "-"]
        if not must and not without:
            return combined(plain, operator=self._operator)
        if self._operator == "and":
            must, plain = [*plain, *must], []
        return Bool(must=tuple(must), should=tuple(plain), must_not=tuple(without))

    def _group(self, field: str | None) -> Signed:
        first = self._chain(field)
        if self._peek().kind != "or":
            return first
        chains = [first]
        while self._peek().kind == "or":
            self._next()
            chains.append(self._chain(field))
        return Signed(combined(_asking([self._alone(one) for one in chains])), "", first.at)

    def _chain(self, field: str | None) -> Signed:
        first = self._clause(field)
        if self._peek().kind != "and":
            return first
        clauses = [first]
        while self._peek().kind == "and":
            self._next()
            clauses.append(self._clause(field))
        must = _asking([one.query for one in clauses if one.sign != "-"])
        without = _asking([one.query for one in clauses if one.sign == "-"])
        if not without:
            return Signed(combined(must, operator="and"), "", first.at)
        return Signed(Bool(must=tuple(must), must_not=tuple(without)), "", first.at)

    def _alone(self, one: Signed) -> Query:
        if one.sign == "+":
            raise_invalid(self._text, f"column {one.at + 1}", "`+` beside OR contradicts it; use brackets")
        if one.sign == "-" and not isinstance(one.query, Nothing):
            return Bool(must_not=(one.query,))
        return one.query

    def _clause(self, field: str | None) -> Signed:
        at = self._peek().start
        negated = required = False
        while (kind := self._peek().kind) in ("plus", "minus", "not"):
            self._next()
            negated ^= kind != "plus"
            required |= kind == "plus"
        query = self._atom(field)
        return Signed(query, "-" if negated else "+" if required else "", at)

    # -- atoms --------------------------------------------------------------------------------------------------------

    def _atom(self, field: str | None) -> Query:
        token = self._next()
        if token.kind == "field":
            field = _unescaped(token.text)
            token = self._next()
            if token.kind == "minus" and self._peek().kind == "word":  # a number below zero
                number = self._next()
                token = number._replace(start=token.start, text=f"-{number.text}")
        query = self._bracket(field, token) if token.kind == "left" else self._leaf(field, token)
        if self._peek().kind == "boost":
            query = boosted(query, self._said(self._peek(), boost_of, float(self._next().text)))
        return query

    def _bracket(self, field: str | None, opening: Token) -> Query:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            self._raise_invalid(opening, f"brackets are more than {DEPTH_MAX} deep")
        query = self._query(field)
        if self._peek().kind != "right":
            self._raise_invalid(opening, "this bracket is never closed")
        self._next()
        self._depth -= 1
        return query

    def _leaf(self, field: str | None, token: Token) -> Query:
        makers = {
            "word": self._word, "phrase": self._phrase, "regex": self._regex, "close": self._range,
            "limit": self._limit,
        }  # fmt: skip
        if token.kind not in makers:
            shown = token.text or "the end"
            self._raise_invalid(token, f"a word, a phrase, a range or a bracket is expected, not {shown!r}")
        after = self._peek()
        tilde = self._next().text if after.kind == "tilde" and token.kind in ("word", "phrase") else None
        if field == "*" and token.text == "*":
            return All()
        if field == "_exists_":
            existing: Query = self._said(token, self._make.exists, _unescaped(token.text))
            return existing
        names = (field,) if field is not None else self._default
        if not names:
            self._raise_invalid(token, "it names no field, and there are no default fields")
        found = [self._said(token, makers[token.kind], name, token, tilde) for name in names]
        return combined(_asking(found))

    def _word(self, name: str, token: Token, tilde: str | None) -> Query:
        text = token.text
        if text == "*":
            return self._make.exists(name)
        lowered = text.lower() if name in self._make.lowered else text
        if tilde is not None:
            return self._make.fuzzy(name, _unescaped(lowered), tilde or "AUTO")
        if _UNESCAPED_WILD.search(text):
            stem = lowered[:-1]
            if lowered.endswith("*") and not _UNESCAPED_WILD.search(stem) and not stem.endswith("\\"):
                return self._make.prefix(name, _unescaped(stem))
            return self._make.wildcard(name, lowered)
        return self._make.phrase(name, _unescaped(text))

    def _phrase(self, name: str, token: Token, tilde: str | None) -> Query:
        return self._make.phrase(name, _unescaped(token.text), int(tilde or 0))

    def _regex(self, name: str, token: Token, tilde: str | None) -> Query:  # noqa: ARG002 - one signature for all
        return self._make.regex(name, token.text.replace("\\/", "/"))

    def _range(self, name: str, token: Token, tilde: str | None) -> Query:  # noqa: ARG002
        found = token.found
        assert found is not None
        low, high = _bound(found["from"]), _bound(found["to"])
        low_side = "gte" if found["open"] == "[" else "gt"
        high_side = "lte" if found["close"] == "]" else "lt"
        if low is None and high is None:
            return self._make.exists(name)
        return self._make.range(name, **{low_side: low, high_side: high})

    def _limit(self, name: str, token: Token, tilde: str | None) -> Query:  # noqa: ARG002
        found = token.found
        assert found is not None
        side = {">": "gt", ">=": "gte", "<": "lt", "<=": "lte"}[found["compare"]]
        return self._make.range(name, **{side: _bound(found["limit"])})

    # -- tokens -------------------------------------------------------------------------------------------------------

    def _peek(self) -> Token:
        return self._tokens[self._place]

    def _next(self) -> Token:
        token = self._tokens[self._place]
        self._place = min(self._place + 1, len(self._tokens) - 1)
        return token

    # Any: whatever the maker takes and makes.
    def _said(self, token: Token, make: Any, *arguments: Any) -> Any:
        try:
            return make(*arguments)
        except LeafInvalid as wrong:
            self._raise_invalid(token, str(wrong))

    def _raise_invalid(self, token: Token, why: str) -> Any:
        raise_invalid(self._text, f"column {token.start + 1}", why)


def _asking(queries: list[Query]) -> list[Query]:
    """Those that ask for something: of a word that is a stop word in its field nothing is left."""
    return [query for query in queries if not isinstance(query, Nothing)]


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(r"\1", text) if "\\" in text else text


def _bound(text: str) -> str | None:
    if text == "*":
        return None
    return _unescaped(text[1:-1] if text.startswith('"') else text)
