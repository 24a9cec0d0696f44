"""Entities: what happened to each, who did it and why, the states before and after, and commands tried."""
