"""Mirrors: topics of one log copied to another of any kind, exactly once, with the positions of consumer groups."""

from headwater.log.mirror.mirror import Mirror, MirrorProgress
from headwater.log.mirror.positions import MIRROR_TOPIC

__all__ = ["MIRROR_TOPIC", "Mirror", "MirrorProgress"]
