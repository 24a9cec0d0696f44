"""`headwater init`: write a new project, small enough to read in a few minutes."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from headwater.cli.declaration import Noun
from headwater.cli.session import Session
from headwater.errors import InUse

#: What is written, and the template that it is made from.
FILES = {
    "pipeline.py": "pipeline.py.template",
    "headwater.toml": "headwater.toml.template",
    "tests/test_pipeline.py": "test_pipeline.py.template",
    "README.md": "README.md.template",
    ".gitignore": "gitignore.template",
}
#: Users often create these two first; `init` writes neither of them.
HARMLESS = frozenset({".git", ".venv"})
NEXT = """\
{name} is ready. Next:

{enter}  headwater dev       runs pipeline.py, and reloads it whenever you save it

Open the address that it prints in a browser. In a second terminal, in the same folder:

  echo '{{"user": "ada", "item": "tea", "amount": 42, "at": "2026-01-01T10:00:05Z"}}' | headwater produce orders
  headwater sql "SELECT * FROM revenue"
  pytest              runs tests/test_pipeline.py

README.md has more."""

Name = Annotated[
    str, typer.Argument(help="Name of the project, and of the new folder; . takes the current one.", metavar="NAME")
]
_INSTEAD = "Choose another name, or an empty folder. Nothing was written"


COMMANDS = Noun()


@COMMANDS.command("init")
def init(session: Session, name: Name) -> None:
    """Write a new project: a pipeline, its settings, its test and a README.

    The pipeline has a topic, a view by the minute and a topic for late rows. `headwater dev` runs it.
    """
    folder = Path(name)
    project = checked_name(folder)
    refuse_what_is_there(folder)
    for file, text in written(project).items():
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    if session.output == "table":
        enter = "" if folder.absolute() == Path.cwd() else f"  cd {folder}\n"
        session.say(NEXT.format(name=project, enter=enter))
    else:
        session.show({"name": project, "folder": str(folder), "files": list(FILES)})


def checked_name(folder: Path) -> str:
    """The project's name, which its app will have too."""
    from headwater.log.topic_rules import check_name

    name = folder.absolute().name  # of `.` the folder's own; that of `..` is refused as no name
    check_name("project", name)
    return name


def refuse_what_is_there(folder: Path) -> None:
    """Raise if the folder has files: `init` never overwrites a file of the user."""
    if folder.is_dir():
        found = sorted(path.name for path in folder.iterdir() if path.name not in HARMLESS)
        if found:
            raise InUse(what=f"The folder {folder}", by=found[0], instead=_INSTEAD)
    elif folder.exists() or folder.is_symlink():
        raise InUse(what=f"The name {folder}", by="a file", instead=_INSTEAD)


def written(name: str) -> dict[str, str]:
    """The files of a project by their paths.

    >>> 'hw.App("shop")' in written("shop")["pipeline.py"]
    True
    """
    templates = files("headwater.cli") / "project"
    return {
        file: (templates / template).read_text(encoding="utf-8").replace("{{name}}", name)
        for file, template in FILES.items()
    }
