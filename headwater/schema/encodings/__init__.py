"""Rows as bytes that other programs read and write: JSON lines and Avro."""
