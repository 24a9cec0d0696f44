"""Materialised views: their rows as they change."""
