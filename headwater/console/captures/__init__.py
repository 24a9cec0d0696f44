"""Captures: databases as streams, how far behind each is, and what its database keeps for it."""
