"""Crash tests: a seeded workload is killed at a named step or loses power, and a fresh process looks what is left."""
