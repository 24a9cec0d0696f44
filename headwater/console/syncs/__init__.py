"""Syncs: targets that are kept in step with topics, how far each is behind, and what the last comparison found."""
