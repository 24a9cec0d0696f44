"""Patterns in the order of events: what is looked for, how it is written, and how it is found."""

from headwater.operators.match.builder import Pattern, begin
from headwater.operators.match.operator import Match
from headwater.operators.match.rules import MatchRules

__all__ = ["Match", "MatchRules", "Pattern", "begin"]
