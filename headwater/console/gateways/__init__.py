"""Gateways: events in and out without a client library, what each has taken, and what it rejected or lost."""
