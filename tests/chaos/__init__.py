"""A streaming query that is killed again and again: `make chaos`."""
