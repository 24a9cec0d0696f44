"""Histories: processes that work on one log are killed again and again, and all that they saw must fit together."""
