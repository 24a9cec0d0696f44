"""Write docs/reference from the source: one page per public package, one for errors, one for settings.

    python tools/reference.py            write the pages
    python tools/reference.py --check    exit with 1 if a page is not what the source says

The tool parses packages instead of importing them, and quotes signatures as they are written, so that every Python
version writes the same pages.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

from headwater import errors
from headwater.config import ENVIRONMENT_PREFIX, Config
from headwater.errors import HeadwaterError, NotFound

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "docs" / "reference"
MADE_BY = "<!-- Made by tools/reference.py from the source; change the docstrings there, then `make format`. -->\n"

Definition = ast.ClassDef | ast.FunctionDef | ast.Assign | ast.AnnAssign


class Module:
    """One source file: its text, its syntax tree and the definitions of its names."""

    def __init__(self, path: Path) -> None:
        self.text = path.read_text(encoding="utf-8")
        self.tree = ast.parse(self.text)
        self.doc = ast.get_docstring(self.tree) or ""
        # A package that imports lazily lists its public names under `if TYPE_CHECKING:`.
        self.nodes = [
            *self.tree.body,
            *(node for top in self.tree.body if isinstance(top, ast.If) for node in top.body),
        ]

    def listed(self) -> list[str]:
        """The names in `__all__`."""
        for node in self.nodes:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                names: list[str] = ast.literal_eval(node.value)
                return names
        return []

    def public(self) -> list[str]:
        """The names in `__all__`; in a module without it, every class and function that is not private."""
        defined = [node.name for node in self.nodes if isinstance(node, ast.ClassDef | ast.FunctionDef)]
        return self.listed() or [name for name in defined if not name.startswith("_")]

    def find(self, name: str) -> tuple[Module, Definition | None]:
        """Find the definition of a name, through imports inside the package; a module itself has no definition."""
        for node in self.nodes:
            names = {alias.asname or alias.name: alias.name for alias in getattr(node, "names", ())}
            if isinstance(node, ast.ImportFrom) and name in names:
                submodule = source_of(f"{node.module}.{names[name]}")
                if submodule.exists():
                    return Module(submodule), None
                return Module(source_of(node.module or "")).find(names[name])
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
                return self, node
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
                return self, node
            if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == name:
                return self, node
        raise LookupError(f"{name} is listed in __all__ but not defined")

    def quote(self, start: int, stop_line: int, stop_column: int) -> str:
        """Quote the source from a line to a position, without its indentation and its comments."""
        lines = self.text.splitlines()[start - 1 : stop_line]
        lines[-1] = lines[-1].encode()[:stop_column].decode()
        return textwrap.dedent("\n".join(line for line in lines if not line.lstrip().startswith("#"))).rstrip()


def source_of(module: str) -> Path:
    path = ROOT / module.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


# -- one public name --------------------------------------------------------------------------------------------------


def signature(module: Module, node: ast.FunctionDef) -> str:
    first = node.body[0]
    decorators = [f"@{ast.unparse(decorator)}" for decorator in node.decorator_list]
    return "\n".join([*decorators, module.quote(node.lineno, first.lineno, first.col_offset).removesuffix(":")])


def outline(module: Module, node: ast.ClassDef) -> str:
    """A class with its public fields, as the source has them."""
    first = node.body[0]
    decorators = [f"@{ast.unparse(decorator)}" for decorator in node.decorator_list]
    head = module.quote(node.lineno, first.lineno, first.col_offset)
    quoted = [
        module.quote(field.lineno, field.end_lineno or field.lineno, field.end_col_offset or 0)
        for field in node.body
        if isinstance(field, ast.AnnAssign) and not ast.unparse(field.target).startswith("_")
    ]
    return "\n".join([*decorators, head, *textwrap.indent("\n".join(quoted), "    ").splitlines()]).removesuffix(":")


def markdown(doc: str) -> str:
    """A docstring as Markdown: examples become code blocks. The test suite runs them in the source."""
    paragraphs = inspect.cleandoc(doc).split("\n\n")
    return "\n\n".join(
        f"```pycon\n{paragraph}\n```" if paragraph.startswith(">>>") else paragraph for paragraph in paragraphs
    )


def code(text: str) -> str:
    return f"```py\n{text}\n```"


def entry(door: Module, name: str, *, level: int = 2, inside: str = "") -> Iterator[str]:
    """The paragraphs about one public name, its methods and its inner names."""
    module, node = door.find(name)
    yield f"{'#' * level} {inside}{name}"
    if node is None:
        yield markdown(module.doc)
        for inner in module.public():
            yield from entry(module, inner, level=min(level + 1, 4), inside=f"{inside}{name}.")
    elif isinstance(node, ast.FunctionDef):
        yield from function_entry(module, node)
    elif isinstance(node, ast.ClassDef):
        yield code(outline(module, node))
        yield markdown(ast.get_docstring(node) or "")
        for method in node.body:
            if isinstance(method, ast.FunctionDef) and not method.name.startswith("_"):
                yield f"{'#' * (level + 1)} {inside}{name}.{method.name}"
                yield from function_entry(module, method)
    else:
        yield code(module.quote(node.lineno, node.end_lineno or node.lineno, node.end_col_offset or 0))
        yield markdown(constant_doc(module, node))


def function_entry(module: Module, node: ast.FunctionDef) -> Iterator[str]:
    yield code(signature(module, node))
    yield markdown(ast.get_docstring(node) or "")


def constant_doc(module: Module, node: ast.stmt) -> str:
    """The docstring just below a constant."""
    position = module.nodes.index(node)
    after = module.nodes[position + 1] if position + 1 < len(module.nodes) else None
    if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) and isinstance(after.value.value, str):
        return after.value.value
    return ""


# -- the pages --------------------------------------------------------------------------------------------------------


def page(paragraphs: Iterator[str] | list[str]) -> str:
    return "\n\n".join([MADE_BY.rstrip(), *filter(None, paragraphs)]) + "\n"


def package_page(package: str, door: Module) -> str:
    names = [paragraph for name in door.listed() for paragraph in entry(door, name)]
    return page([f"# {package}", markdown(door.doc), *names])


def errors_page() -> str:
    return page(_errors())


def _errors() -> Iterator[str]:
    yield "# Errors"
    yield "Every error is a `HeadwaterError` and branches by what the caller can do. The command line ends with the code shown."
    drawing = inspect.cleandoc(errors.__doc__ or "").split("\n\n")[1]
    yield "```text\n" + textwrap.dedent(drawing) + "\n```"
    for path in sorted(source_of("headwater").parent.rglob("*.py")):
        if "@dataclass(eq=False, kw_only=True)" in path.read_text(
            encoding="utf-8"
        ):  # a module without this line defines no error
            importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    for branch in HeadwaterError.__subclasses__():
        yield f"## {branch.__name__}"
        yield f"{branch.__doc__} Exit code {branch.exit_code}, HTTP status {branch.http_status}."
        if branch is NotFound:
            yield f"- Problem: {_quoted(NotFound.problem)}\n- Facts: `kind`, `name`, `near`"
        for leaf in branch.__subclasses__():
            yield f"### {leaf.__name__}"
            yield f"`{leaf.__module__}.{leaf.__name__}`"
            yield leaf.__doc__ or ""
            facts = ", ".join(f"`{fact.name}`" for fact in fields(leaf))
            code_own = f"\n- Exit code: {leaf.exit_code}" if leaf.exit_code != branch.exit_code else ""
            code_own += f"\n- HTTP status: {leaf.http_status}" if leaf.http_status != branch.http_status else ""
            yield f"- Problem: {_quoted(leaf.problem)}\n- Remedy: {_quoted(leaf.remedy)}\n- Facts: {facts}{code_own}"


def _quoted(text: str) -> str:
    """A format string as prose: its facts in italics, or in capitals inside code."""
    parts = re.split(r"(`[^`]*`)", text)
    words = [
        re.sub(r"\{(\w+)\}", lambda fact: fact[1].upper(), part)
        if part.startswith("`")
        else re.sub(r"\{(\w+)[^}]*\}", r"*\1*", part)
        for part in parts
    ]
    return "".join(words).replace("{{", "{").replace("}}", "}")


def settings_page() -> str:
    rows = [
        f"| `{setting.name}` | `{setting.text}` | `{ENVIRONMENT_PREFIX}{setting.name.upper()}` | {setting.help} |"
        for setting in Config().describe()
    ]
    intro = (
        "Flags are stronger than the environment, which is stronger than `./headwater.toml`, which is stronger than the\n"
        "user's file (`~/.config/headwater/config.toml` on Linux), which is stronger than these defaults.\n"
        "`headwater config show` prints each value and where it came from. A name that is no setting is an error."
    )
    units = 'Sizes may be written as `"64 MiB"` or `"10 GB"`, durations as `"7 days"` or `"500 ms"`.'
    table = "\n".join(["| Setting | Default | Variable | What it is |", "|---|---|---|---|", *rows])
    other = (
        '`HEADWATER_CONFIG` names a file to read instead of `./headwater.toml`; `NO_COLOR` means `color = "never"`.\n'
        "Variables that begin with `HEADWATER_TEST_` belong to the test suite and are not read."
    )
    return page(["# Settings", intro, units, table, other])


def gateways_page() -> str:
    """Every kind of gateway: what its module and its class say, and its settings with the comments on them."""
    intro = (
        "Each kind as `headwater gateway run KIND NAME=VALUE …` takes it, as a table `[[gateway]]` of a file has it, and as a class of\n"
        "`headwater.gateways` for `app.gateway(…)`. [Gateways](gateways.md) says how they are run and what each may lose."
    )
    # Imported here: the page of errors has them in the order of their imports, which is that of the rooms.
    from headwater.gateways.kinds import KINDS

    return page(["# Kinds of gateways", intro, *(part for kind in KINDS for part in _gateway_kind(kind))])


def _gateway_kind(kind: str) -> Iterator[str]:
    from headwater.gateways.kinds import gateway_class, settings_of

    made = gateway_class(kind)
    yield f"## {kind}"
    yield f"`{made.__name__}`: events {made.direction}."
    yield str(inspect.getdoc(inspect.getmodule(made)))
    yield str(inspect.getdoc(made)).partition("\n>>>")[0].strip()
    comments: dict[str, str] = {}
    for owner in reversed(made.__mro__[:-1]):
        for comment, name in re.findall(r"((?:^ *#: .*\n)+) *(\w+):", inspect.getsource(owner), flags=re.MULTILINE):
            comments[name] = " ".join(line.strip()[3:] for line in comment.splitlines())
    rows = [
        f"| `{name}` | {what} | {_default_of(default)} | {comments.get(name, '')} |"
        for name, (what, default) in settings_of(kind).items()
    ]
    yield "\n".join(["| Setting | What it is | Default | |", "|---|---|---|---|", *rows])


def _default_of(default: object) -> str:
    if isinstance(default, tuple):
        default = ",".join(map(str, default))
    return "" if default in (None, "") else f"`{str(default).lower() if isinstance(default, bool) else default}`"


def pages() -> dict[Path, str]:
    """Every page by its path."""
    made = {
        REFERENCE / "errors.md": errors_page(),
        REFERENCE / "settings.md": settings_page(),
        REFERENCE / "gateway-kinds.md": gateways_page(),
    }
    for folder in [ROOT / "headwater", *sorted((ROOT / "headwater").iterdir())]:
        # The command line is documented by its commands.
        if (folder / "__init__.py").exists() and folder.name != "cli":
            package = str(folder.relative_to(ROOT)).replace("/", ".")
            made[REFERENCE / "api" / f"{package}.md"] = package_page(package, Module(folder / "__init__.py"))
    return made


def main() -> int:
    parser = argparse.ArgumentParser(description="Write docs/reference from the source.")
    parser.add_argument("--check", action="store_true", help="only name the pages that are out of date")
    check = parser.parse_args().check
    made = pages()
    stale = [path for path, text in made.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    gone = [path for path in (REFERENCE / "api").glob("*.md") if path not in made]
    for path in [*stale, *gone]:
        print(f"{path.relative_to(ROOT)} {'is out of date; run `make format`' if check else 'is written'}")
    if check:
        return 1 if stale or gone else 0
    for path in gone:
        path.unlink()
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(made[path], encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
