"""Patterns in the order of events: what is looked for, how it is written, and how it is found."""

from headwater.operators.match.language.builder import Pattern, begin
from headwater.operators.match.run.match import Match
from headwater.operators.match.run.match_rules import MatchRules

__all__ = ["Match", "MatchRules", "Pattern", "begin"]
