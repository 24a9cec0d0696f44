"""Tests of `headwater.schema.encodings`."""
