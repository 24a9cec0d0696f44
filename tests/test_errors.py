"""Every way to fail has a problem, a remedy and facts, and survives a trip to another process."""

from __future__ import annotations

import importlib
import pickle
import re
import string
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from headwater import errors
from headwater.errors import EncodingInvalid, HeadwaterError, NotFound, NotPossible, error_of
from tests.package_files import modules

ROOT = Path(__file__).parents[1]


# A class lives beside what raises it: only modules that are loaded have theirs in the tree.
for path, text in modules().items():
    if "@dataclass(eq=False, kw_only=True)" in text:
        importlib.import_module(".".join(("headwater", *path.with_suffix("").parts)))


def below(kind: type[HeadwaterError]) -> list[type[HeadwaterError]]:
    """The classes of the package directly under `kind`."""
    return [child for child in kind.__subclasses__() if child.__module__.startswith("headwater.")]


BRANCHES = below(HeadwaterError)
LEAVES = [leaf for branch in BRANCHES for leaf in below(branch)]
KINDS = [*LEAVES, NotFound]

#: A fact of each type that the tree uses, chosen so that it can be found again in a message.
FACTS: dict[str, Any] = {"str": "seven", "int": 7, "float": 7.0, "Any": "seven"}


def example(kind: type[HeadwaterError]) -> HeadwaterError:
    # The module postpones its annotations, so the type of a field is its text.
    return kind(**{field.name: FACTS[str(field.type)] for field in fields(kind)})


@pytest.mark.parametrize("leaf", KINDS)
def test_each_error_has_a_problem_and_a_remedy_of_its_own(leaf: type[HeadwaterError]) -> None:
    assert {"problem", "remedy"} <= vars(leaf).keys()
    assert leaf.__doc__ is not None
    assert leaf.__doc__.endswith(".")
    assert leaf.problem.rstrip().endswith((".", "}"))
    assert leaf.remedy.endswith((".", "?"))


@pytest.mark.parametrize("leaf", KINDS)
def test_each_message_is_made_of_facts_that_exist(leaf: type[HeadwaterError]) -> None:
    used = {name for text in (leaf.problem, leaf.remedy) for _, name, _, _ in string.Formatter().parse(text) if name}
    assert used <= {field.name for field in fields(leaf)}
    message = str(example(leaf))
    assert message
    assert not re.search(r"\{\w+[!:}]", message)


@pytest.mark.parametrize("leaf", KINDS)
def test_each_fact_is_said_in_the_message(leaf: type[HeadwaterError]) -> None:
    said = {name for text in (leaf.problem, leaf.remedy) for _, name, _, _ in string.Formatter().parse(text)}
    assert {field.name for field in fields(leaf)} <= said


@pytest.mark.parametrize("leaf", KINDS)
def test_each_error_comes_back_from_another_process_unchanged(leaf: type[HeadwaterError]) -> None:
    error = example(leaf)
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is leaf
    assert (back.facts(), str(back)) == (error.facts(), str(error))


def test_the_drawing_at_the_top_of_the_module_has_the_branches() -> None:
    drawing = (errors.__doc__ or "").partition("Each class has")[0]
    drawn = [re.findall(r"\b[A-Z]\w+", line)[0] for line in drawing.splitlines() if re.search(r"[├└]", line)]
    assert sorted(drawn) == sorted(branch.__name__ for branch in BRANCHES)


def test_the_tree_has_three_levels_and_its_branches_are_in_one_module() -> None:
    assert {branch.__module__ for branch in BRANCHES} == {errors.__name__}
    assert [leaf for leaf in LEAVES if below(leaf)] == []
    assert len({kind.__name__ for kind in (*BRANCHES, *LEAVES)}) == len(BRANCHES) + len(LEAVES)


@pytest.mark.parametrize("leaf", KINDS)
def test_an_error_that_another_process_tells_is_of_the_same_class(leaf: type[HeadwaterError]) -> None:
    error = example(leaf)
    told = {"error": leaf.__name__, "branch": error.branch(), "facts": error.facts(), "message": str(error)}
    back = error_of(told)
    assert (type(back), str(back)) == (leaf, str(error))
    branch = leaf if leaf is NotFound else leaf.__mro__[1]
    unknown = error_of({**told, "error": "OfAModuleThatIsNotLoaded"})
    assert isinstance(unknown, branch)
    assert str(pickle.loads(pickle.dumps(unknown))) == str(unknown) == str(error)
    assert isinstance(unknown, HeadwaterError)
    assert unknown.exit_code == branch.exit_code  # type: ignore[attr-defined]


def test_what_is_no_error_is_none() -> None:
    assert error_of(["no object"]) is error_of({}) is error_of({"error": "Exception", "branch": "type"}) is None


def test_no_other_module_grows_a_branch_of_its_own() -> None:
    elsewhere = [
        f"{path}: {name}"
        for path, text in modules().items()
        if path.name != "errors.py"
        for name, bases in re.findall(r"^ *class (\w+)\(([^)]*)\)", text, flags=re.MULTILINE)
        if HeadwaterError.__name__ in {base.strip().rpartition(".")[2] for base in bases.split(",")}
    ]
    assert elsewhere == [], "a leaf beside what raises it has a branch of headwater/errors.py as its base"


def test_the_exit_codes_are_those_that_the_command_line_promises() -> None:
    assert {branch.__name__: branch.exit_code for branch in BRANCHES} == {
        "UsageError": 2,
        "NotFound": 3,
        "NotAllowed": 4,
        "Conflict": 5,
        "LogError": 1,
        "QueryError": 1,
        "StorageError": 1,
    }


def test_a_fact_that_ends_a_sentence_is_not_followed_by_a_full_stop() -> None:
    why = "column 'usr' is not in the schema; did you mean 'user'?"
    assert "did you mean 'user'? Correct" in str(EncodingInvalid(encoding="JSON", position="line 1", why=why))
    assert str(NotPossible(why="It ended.", instead="Wait for ../data or ...")) == "It ended. Wait for ../data or ...."
