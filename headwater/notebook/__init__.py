"""What a notebook shows: topics, views and apps as small cards, and a view as it changes: from plain values to HTML."""

from headwater.notebook.cards import card, grid, picture
from headwater.notebook.live import follow

__all__ = ["card", "follow", "grid", "picture"]
