"""The first page: whether everything is healthy."""
