"""Captures of databases: changes per second, delay, memory, and what they cost the database."""
