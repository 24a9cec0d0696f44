"""Patterns as SQL text, in the words of MATCH_RECOGNIZE: read into rules, checked, and written again."""

from headwater.operators.match.sql.check import check
from headwater.operators.match.sql.reading import parse
from headwater.operators.match.sql.render import pattern_text, render
from headwater.operators.match.sql.values_text import text_of

__all__ = ["check", "parse", "pattern_text", "render", "text_of"]
