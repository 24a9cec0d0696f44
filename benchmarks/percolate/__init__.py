"""The cost of matching documents against stored queries."""
