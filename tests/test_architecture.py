"""The tree is the architecture: imports point one way, doors list what is public, and the reference says the same."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest
from importlinter.cli import lint_imports

from tests.package_files import modules

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "docs" / "reference" / "api"


def doors() -> dict[str, Path]:
    """The public packages by name; the command line is documented by its commands, not by its Python names."""
    folders = [ROOT / "headwater", *sorted((ROOT / "headwater").iterdir())]
    return {
        str(folder.relative_to(ROOT)).replace("/", "."): folder / "__init__.py"
        for folder in folders
        if (folder / "__init__.py").exists() and folder.name != "cli"
    }


def listed(door: Path) -> list[str]:
    """What a door's `__all__` says, read without importing it."""
    for node in ast.parse(door.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names: list[str] = ast.literal_eval(node.value)
            return names
    return []


def documented(package: str) -> list[str]:
    page = REFERENCE / f"{package}.md"
    return re.findall(r"^## (\S+)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE) if page.exists() else []


def in_order(names: list[str]) -> list[str]:
    """Constants, then classes, then functions: the order that ruff gives to `__all__`."""
    return sorted(names, key=lambda name: (not name.isupper(), not name[0].isupper(), name))


def loaded_by(statement: str) -> set[str]:
    """The modules in memory of a fresh interpreter after it ran `statement`."""
    script = f"{statement}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    return set(done.stdout.split())


def test_imports_point_only_up_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert lint_imports(config_filename="pyproject.toml", no_logo=True) == 0


@pytest.mark.process
@pytest.mark.parametrize(
    "statement",
    [
        "import headwater",
        "from headwater import Config",
        "import headwater.config, headwater.errors, headwater.clock, headwater.units",
    ],
)
def test_the_first_import_loads_neither_arrow_nor_spark(statement: str) -> None:
    assert not loaded_by(statement) & {"pyarrow", "numpy", "pandas", "polars", "pyspark", "pydantic", "typer"}


@pytest.mark.process
def test_opening_a_log_does_not_load_spark() -> None:
    assert "pyspark" not in loaded_by("import headwater; headwater.open")


@pytest.mark.parametrize("package", doors())
def test_each_door_lists_its_names_in_order(package: str) -> None:
    names = listed(doors()[package])
    assert names == in_order(names)
    assert len(names) == len(set(names))


@pytest.mark.parametrize("package", doors())
def test_the_reference_has_one_heading_for_each_public_name(package: str) -> None:
    assert documented(package) == listed(doors()[package])


def test_no_law_says_how_many_examples_it_wants() -> None:
    tests = [path for path in (ROOT / "tests").rglob("*.py") if path.name not in ("laws.py", "test_architecture.py")]
    assert [path for path in tests if "max_examples" in path.read_text(encoding="utf-8")] == []


@pytest.mark.parametrize("lock", sorted((ROOT / "requirements").glob("*.lock")), ids=lambda lock: lock.name)
def test_a_lock_file_holds_hashes_but_no_addresses(lock: Path) -> None:
    text = lock.read_text(encoding="utf-8")
    assert "--hash=sha256:" in text
    assert "://" not in text
    assert not [line for line in text.splitlines() if line.startswith("-")], "options of the machine it was made on"


def test_bytes_are_unpickled_in_one_place_alone() -> None:
    """Decision 13 lists it: what operators hand to readers of the same program is code."""
    found = [str(path) for path, text in modules().items() if re.search(r"pickle\.loads?\(|import loads?\b", text)]
    assert found == ["engine/reader_protocol.py"]
