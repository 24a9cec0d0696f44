"""Entities beside the library `eventsourcing`."""
