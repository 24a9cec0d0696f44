"""One concept, one word: names and prose use the words of `docs/reference/glossary.md`.

`python -m tests.test_vocabulary` counts what is left to change, room by room.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = ("headwater", "examples", "benchmarks", "tools", "tests")
PAGES = ("docs", "README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")

#: Names of modules and folders are nouns. These end as a gerund or a participle does, and are words of the domain.
NAMES_ALLOWED = {
    "embedded": "the log that runs inside the process: an embedded database",
    "everything": "a noun",
    "hopping": "a kind of window",
    "nested": "Arrow's and SQL's word for lists, maps and structs",
    "rolling": "a kind of window",
    "sliding": "a kind of window",
    "sourcing": "event sourcing",
    "string": "a noun",
    "testing": "the door for users' own tests, as in NumPy and Airflow",
    "trading": "a market: the example's own domain",
    "tumbling": "a kind of window",
}
#: Home-made names, with the name from the glossary.
NAMES_FORBIDDEN = {
    "book": "store",
    "letters": "dead_letters",
    "patience": "retry",
    "refusals": "dead_letters",
    "telling": "notification",
    "turn": "leader_lock",
}
#: Modules of one folder whose names are alike, and which a reader does not confuse all the same.
ALIKE_ALLOWED: frozenset[frozenset[str]] = frozenset()

#: Home-made words, with the word from the glossary.
WORDS = {
    r"anew": "again, or what is new",
    r"(?<!dead )(?<!dead-)letters": "dead letters; of a text: characters",
    r"mend(?:s|ed|ing)?": "fix, correct",
    r"nobody|somebody|whoever": "another process, the caller, the user",
    r"put aside|putting aside|puts aside": "dead letter, side output",
    r"patience": "retry with back-off",
    r"settl(?:e|es|ed|ing)": "resolve, drain, idle, decide",
    r"taken back|take back|takes back|withdrawals?": "retraction",
    r"upkeep": "maintenance",
}
#: Since Python 3.12 the text of an f-string is a token of its own.
_STRINGS = (tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING))
_WORD = re.compile(rf"\b(?:{'|'.join(WORDS)})\b", re.IGNORECASE)


def test_modules_and_folders_are_named_by_nouns() -> None:
    assert _left(_bad_names()) == []


def test_no_two_modules_of_a_folder_are_named_alike() -> None:
    assert _left(_alike()) == []


def test_prose_uses_the_words_of_the_glossary() -> None:
    assert _left(_bad_words()) == []


def test_the_glossary_explains_its_terms_in_order() -> None:
    page = (ROOT / "docs" / "reference" / "glossary.md").read_text(encoding="utf-8")
    terms = re.findall(r"^\| \*\*(.+?)\*\* \|", page, flags=re.MULTILINE)
    assert len(terms) >= 60
    assert terms == sorted(terms, key=str.lower)


def _left(found: Iterator[tuple[str, str]]) -> list[str]:
    return [f"{path}: {why}" for path, why in found]


def _modules() -> Iterator[Path]:
    """Every module and package of the sources. A test is named by its claim, or as the module that it tests."""
    for source in SOURCES:
        for path in sorted((ROOT / source).rglob("*.py")):
            if path.name == "__init__.py":
                yield path.parent
            elif not path.name.startswith(("test_", "_")):
                yield path


def _bad_names() -> Iterator[tuple[str, str]]:
    for path in _modules():
        place, last = str(path.relative_to(ROOT)), path.stem.split("_")[-1]
        if path.stem in NAMES_FORBIDDEN:
            yield place, f"the glossary says {NAMES_FORBIDDEN[path.stem]!r}"
        elif re.search(r"(?:ing|ed)$", last) and last not in NAMES_ALLOWED and not re.search(r"eed$", last):
            yield place, "a module is a noun"


def _alike() -> Iterator[tuple[str, str]]:
    by_stem: dict[tuple[Path, str], list[Path]] = defaultdict(list)
    for path in _modules():
        by_stem[path.parent, _stem(path.stem)].append(path)
    for paths in by_stem.values():
        names = frozenset(path.stem for path in paths)
        if len(paths) > 1 and names not in ALIKE_ALLOWED:
            yield str(paths[0].relative_to(ROOT)), f"a reader confuses {', '.join(sorted(names))}"


def _stem(name: str) -> str:
    """What several forms of a word have in common.

    >>> {_stem(name) for name in ("transaction", "transactions", "transacting")}
    {'transact'}
    """
    ending = re.search(r"(?<=\w{3})(?:ings?|ions?|ers?|ors?|ed|es|s|e)$", name)
    return name if ending is None else _stem(name[: ending.start()])


def _bad_words() -> Iterator[tuple[str, str]]:
    pages = [page for place in PAGES for page in ([ROOT / place] if "." in place else (ROOT / place).rglob("*.md"))]
    files = [path for source in SOURCES for path in (ROOT / source).rglob("*.py")]
    for path in sorted({*pages, *files} - {Path(__file__)}):
        place = str(path.relative_to(ROOT))
        text = path.read_text(encoding="utf-8")
        if _WORD.search(text):  # most files have none, and reading their tokens takes long
            lines = _prose(text) if path.suffix == ".py" else enumerate(text.splitlines(), 1)
            for number, line in lines:
                for found in _WORD.finditer(line):
                    yield place, f"line {number} says {found.group()!r}"


def _prose(text: str) -> Iterator[tuple[int, str]]:
    """Comments, docstrings and messages of a module: the strings of more than one word."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT or (token.type in _STRINGS and " " in token.string):
            yield from enumerate(token.string.splitlines(), token.start[0])


if __name__ == "__main__":
    for title, found in (("names", [*_bad_names(), *_alike()]), ("prose", list(_bad_words()))):
        rooms = Counter("/".join(path.split("/")[: 3 if "/operators/" in path else 2]) for path, _ in found)
        print(title, sum(rooms.values()), *(f"  {count:5} {room}" for room, count in sorted(rooms.items())), sep="\n")
