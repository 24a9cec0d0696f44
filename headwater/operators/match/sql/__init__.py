"""Patterns as SQL text, in the words of MATCH_RECOGNIZE: read into trees, checked, and written again."""

from headwater.operators.match.sql.values_text import text_of

__all__ = ["text_of"]
