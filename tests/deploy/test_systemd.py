"""The units of systemd name commands and settings of ours, and confine the process."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.http.guard import LOOPBACK
from tests.deploy.product import DEPLOY, options_of, settings_of

UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
PROGRAM = "/opt/headwater/bin/headwater"


def parsed(path: Path) -> dict[str, dict[str, list[str]]]:
    """The sections of a unit; a name may be given several times."""
    sections: dict[str, dict[str, list[str]]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            current = sections[line.strip("[]")] = {}
        elif line and not line.startswith("#"):
            name, found, value = line.partition("=")
            assert found, line
            current.setdefault(name, []).append(value)
    return sections


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_a_unit_runs_a_command_of_ours_with_settings_of_ours(path: Path) -> None:
    service = parsed(path)["Service"]
    [command] = service["ExecStart"]
    program, *arguments = shlex.split(command)
    assert program == PROGRAM
    options = options_of(arguments)
    settings = settings_of(dict(text.split("=", 1) for text in service["Environment"]))
    [state] = service["StateDirectory"]
    log = options["flag_log"] or settings.log
    assert log == f"/var/lib/{state}/log"
    assert service["WorkingDirectory"] == [f"/var/lib/{state}"]
    if "@" in path.name:
        assert (options["file"], settings.app) == (None, "/etc/headwater/apps/%i.py")
    else:
        assert options["host"] in LOOPBACK  # another address needs a token first


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_a_unit_ends_gracefully_and_is_started_again(path: Path) -> None:
    service = parsed(path)["Service"]
    # Spark's processes must outlive the signal until the app has committed its batches: `mixed` spares them.
    assert (service["KillSignal"], service["KillMode"]) == (["SIGTERM"], ["mixed"])
    assert service["Restart"] == ["on-failure"]
    # `headwater serve` ends with 143 when it is told to stop, `headwater run` with 0.
    assert service.get("SuccessExitStatus", []) == ([] if "@" in path.name else ["143"])
    assert parsed(path)["Install"] == {"WantedBy": ["multi-user.target"]}


@pytest.mark.process
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_systemd_accepts_a_unit_and_finds_it_confined(path: Path, tmp_path: Path) -> None:
    unit = tmp_path / path.name.replace("@", "@fraud")
    unit.write_text(path.read_text(encoding="utf-8").replace(PROGRAM, sys.executable))
    checked = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", unit], capture_output=True, text=True
    )
    assert (checked.returncode, [line for line in checked.stderr.splitlines() if unit.name in line]) == (0, [])
    confined = subprocess.run(
        ["systemd-analyze", "security", "--offline=yes", "--threshold=30", unit], capture_output=True, text=True
    )
    assert confined.returncode == 0, confined.stdout[-2_000:]
