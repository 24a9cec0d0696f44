"""The wheel has what `headwater demo` runs, and the command finds it there."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

ROOT = Path(__file__).parents[3]


@pytest.mark.process
def test_the_company_is_in_the_wheel_and_is_found_there(tmp_path: Path) -> None:
    (wheel,) = WheelBuilder(str(ROOT)).build(directory=str(tmp_path / "dist"), versions=["standard"])
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "installed")
    shipped = tmp_path / "installed" / "headwater" / "_examples" / "company"
    source = ROOT / "examples" / "company"
    assert sorted(path.name for path in shipped.glob("*.*")) == sorted(path.name for path in source.glob("*.*"))
    script = (
        "from headwater.cli.demo.process import make_company_importable\n"
        "make_company_importable()\n"
        "import company.check, company.topics, company.world\n"
        "print(company.__file__)"
    )
    environ = {**os.environ, "PYTHONPATH": str(tmp_path / "installed")}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path, env=environ)
    assert done.stdout.strip() == str(shipped / "__init__.py")
