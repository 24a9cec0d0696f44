"""SQL expressions read by sqlglot: Spark's dialect, with every function left as it is written.

sqlglot turns functions that it knows into nodes of its own. Here each stays a name and its arguments, since FIRST,
LAST, COUNT and the like mean something else among the rows of a match, and since Spark gets all the others back.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from headwater.errors import PackageMissing, PatternInvalid
from headwater.operators.match.sql.source import Source

#: Put before the name of a function that FINAL stands before. A name cannot hold it otherwise.
FINAL = "FINAL "


# Any: sqlglot is loaded when first needed, and its parser class is made then.
@cache
def _reader() -> tuple[Any, Any, Any]:
    try:
        from sqlglot import errors
        from sqlglot.dialects.spark import Spark
    except ModuleNotFoundError as missing:
        raise PackageMissing(package="sqlglot", extra="match") from missing

    class Reader(Spark.Parser):  # type: ignore[misc,valid-type]
        FUNCTIONS: dict[str, Any] = {}
        FUNCTION_PARSERS = {
            name: parse for name, parse in Spark.Parser.FUNCTION_PARSERS.items() if name in ("CAST", "EXTRACT")
        }
        NO_PAREN_FUNCTIONS: dict[Any, Any] = {}
        NO_PAREN_FUNCTION_PARSERS = {
            name: parse for name, parse in Spark.Parser.NO_PAREN_FUNCTION_PARSERS.items() if name == "CASE"
        }

    return Spark(), Reader, errors


def syntax(source: Source, start: int, end: int) -> Any:
    """What stands between two places of the text, as sqlglot's tree. Its places are those of the whole text."""
    dialect, reader, errors = _reader()
    # What stands before is blanked, and not cut off, so that lines and places stay.
    text = "".join(one if one == "\n" else " " for one in source.text[:start]) + source.text[start:end]
    if not text.strip():
        raise source.error(start, "there is no expression", "a condition or a value")
    try:
        tokens = _prepared(dialect.tokenize(text))
        found = reader(dialect=dialect).parse(tokens, text)
    except errors.TokenError as error:
        raise source.error(start, "this cannot be read as SQL: a quote is not closed", "the closing quote") from error
    except RecursionError:
        raise source.error(start, "this is nested too deep", "a condition of fewer levels") from None
    except errors.ParseError as error:
        raise _unread(source, error, end=end) from error
    if len(found) != 1 or found[0] is None:
        raise source.error(start, "this is more than one expression", "one condition or value")
    return found[0]


def _prepared(tokens: list[Any]) -> list[Any]:
    """Without RUNNING and FINAL, which are remembered in the function's name; with 'it''s' as one text."""
    out: list[Any] = []
    for place, token in enumerate(tokens):
        word = token.text.upper()
        call = place + 2 < len(tokens) and tokens[place + 2].text == "(" and tokens[place + 1].text.isidentifier()
        if word in ("RUNNING", "FINAL") and call and token.token_type.name == "VAR":
            if word == "FINAL":
                tokens[place + 1] = _renamed(tokens[place + 1], FINAL + tokens[place + 1].text)
            continue
        joined = out and token.token_type.name == "STRING" == out[-1].token_type.name
        if joined and out[-1].end + 1 == token.start:
            out[-1] = _renamed(out[-1], f"{out[-1].text}'{token.text}", end=token.end)
            continue
        out.append(token)
    return out


def _renamed(token: Any, text: str, *, end: int | None = None) -> Any:
    return type(token)(token.token_type, text, token.line, token.col, token.start, token.end if end is None else end)


def _unread(source: Source, error: Any, *, end: int) -> PatternInvalid:
    """sqlglot's error, at its place; it counts columns by the end of the word."""
    fact = error.errors[0]
    begin = 0
    for _ in range(fact["line"] - 1):
        begin = source.text.index("\n", begin) + 1
    stop = min(begin + fact["col"], end)
    why = fact["description"]
    if why.startswith("Expecting"):
        return source.error(stop, "something is missing", f"'{why[10:]}' here")
    if "missing for" in why:
        return source.error(stop, "something is missing", "a value here")
    return source.error(
        stop - len(fact["highlight"]), f"{fact['highlight']!r} does not fit here", "a condition or value"
    )
