"""Stored queries against documents, and what a naive matcher says."""
