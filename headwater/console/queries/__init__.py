"""Queries of running apps, and their late rows."""
