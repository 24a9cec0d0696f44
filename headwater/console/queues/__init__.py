"""Queues: how much work waits, for how long, who does it, and what failed."""
