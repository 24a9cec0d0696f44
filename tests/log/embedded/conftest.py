from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from headwater.log.embedded import state
from headwater.testing import reboot
from tests.disks import disk_of

__all__ = ["disk_of"]


@pytest.fixture
def power_cut() -> Iterator[Callable[[], None]]:
    """Simulate a reboot: records that were never synced are ignored."""
    real = state.boot_identity
    yield lambda: reboot("another boot")
    state.boot_identity = real
    state.boot_mark.cache_clear()
