"""The operators `Match` and `MatchRules`: their steps, their state, and their outputs."""
