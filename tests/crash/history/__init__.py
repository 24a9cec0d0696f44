"""Histories: processes that work on one log are killed repeatedly, and their records must be consistent."""
