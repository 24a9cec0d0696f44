"""Texts that Spark has really written for errors of users, and how they were made: `python -m tests.apps.failures.make`."""
