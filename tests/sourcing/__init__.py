"""Tests of event sourcing."""
