"""Matches of patterns, rules and stored searches, and the events that they are made of."""
