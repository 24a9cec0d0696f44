"""Rows as bytes that other programs read and write: JSON lines and Avro."""

from headwater.schema.encodings import avro, json

__all__ = ["avro", "json"]
