"""Schemas of topics and of subjects."""
