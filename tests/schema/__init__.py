"""Tests of `headwater.schema`."""
