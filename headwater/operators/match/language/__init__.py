"""The two languages of patterns, SQL's MATCH_RECOGNIZE and the builder: parsed, checked, and rendered again."""

from headwater.operators.match.language.parser import parse
from headwater.operators.match.language.render import pattern_text, render, text_of
from headwater.operators.match.language.type_check import check

__all__ = ["check", "parse", "pattern_text", "render", "text_of"]
