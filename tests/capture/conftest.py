from __future__ import annotations

from tests.disks import disk_of

__all__ = ["disk_of"]
