"""Virtual environments of peers, each of its own, made once beside the data of benchmarks."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.harness import Bench
from benchmarks.peer_servers import PeerUnavailable

_FOLDER = Path(__file__).resolve().parent.parent / "build" / "peers"


def installed(bench: Bench, peer: str, version: str, *packages: str) -> Path:
    """The Python of the environment that holds these packages; raise `PeerUnavailable` if it cannot be made."""
    folder = _FOLDER / f"{peer.lower()}-{version}"
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        uv = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
        if uv is None:
            raise PeerUnavailable(f"uv is not installed, and so {peer} is not")
        bench.say(f"installing {peer}")
        _run(peer, [uv, "venv", "--python", sys.executable, "--clear", str(folder)])
        _run(peer, [uv, "pip", "install", "--python", str(python), *packages])
        (folder / "ready").touch()
    return python


def _run(peer: str, words: Sequence[str]) -> None:
    environ = {"UV_SYSTEM_CERTS": "1", **os.environ}
    done = subprocess.run(words, env=environ, capture_output=True, text=True)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or ["?"]
        raise PeerUnavailable(f"{peer} cannot be installed: {lines[-1]}")
