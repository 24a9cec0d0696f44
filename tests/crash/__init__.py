"""Crash tests: a seeded workload is killed at a crash point or loses power, and a new process checks the log."""
