"""Small disks for tests that fill them."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest


@pytest.fixture
def disk_of() -> Iterator[Callable[[int], Path]]:
    """Mount a disk of so many megabytes, or skip the test if this user may not.

    It is outside of `tmp_path`: a test that is killed leaves its disk mounted, and later runs of pytest could not
    delete the folder.
    """
    with ExitStack() as end:

        def disk(megabytes: int) -> Path:
            mount = Path(tempfile.mkdtemp(prefix="headwater-disk-"))
            end.callback(mount.rmdir)
            command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(mount)]
            if subprocess.run(command, capture_output=True, check=False).returncode:
                pytest.skip("needs the right to mount a small disk")
            end.callback(subprocess.run, ["umount", "-l", str(mount)], check=True)
            return mount

        yield disk
