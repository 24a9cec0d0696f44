"""Every way to fail has a problem, a remedy and facts, and survives a trip to another process."""

from __future__ import annotations

import inspect
import pickle
import re
import string
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from headwater import errors
from headwater.errors import HeadwaterError
from tests.source import modules

ROOT = Path(__file__).parents[1]


def below(kind: type[HeadwaterError]) -> list[type[HeadwaterError]]:
    """The classes that the module hangs directly under `kind`; what others derive is caught by a test of its own."""
    return [child for child in kind.__subclasses__() if child.__module__ == errors.__name__]


BRANCHES = below(HeadwaterError)
LEAVES = [leaf for branch in BRANCHES for leaf in below(branch)]

#: A fact of each type that the tree uses, chosen so that it can be found again in a message.
FACTS: dict[str, Any] = {"str": "seven", "int": 7, "float": 7.0, "Any": "seven"}


def example(kind: type[HeadwaterError]) -> HeadwaterError:
    # The module postpones its annotations, so the type of a field is its text.
    return kind(**{field.name: FACTS[str(field.type)] for field in fields(kind)})


@pytest.mark.parametrize("leaf", LEAVES)
def test_each_error_has_a_problem_and_a_remedy_of_its_own(leaf: type[HeadwaterError]) -> None:
    assert {"problem", "remedy"} <= vars(leaf).keys()
    assert leaf.__doc__ is not None
    assert leaf.__doc__.endswith(".")
    assert leaf.problem.rstrip().endswith((".", "}"))
    assert leaf.remedy.endswith((".", "?"))


@pytest.mark.parametrize("leaf", LEAVES)
def test_each_message_is_made_of_facts_that_exist(leaf: type[HeadwaterError]) -> None:
    used = {name for text in (leaf.problem, leaf.remedy) for _, name, _, _ in string.Formatter().parse(text) if name}
    assert used <= {field.name for field in fields(leaf)}
    message = str(example(leaf))
    assert message
    assert not re.search(r"\{\w+[!:}]", message)


@pytest.mark.parametrize("leaf", LEAVES)
def test_each_fact_is_said_in_the_message(leaf: type[HeadwaterError]) -> None:
    said = {name for text in (leaf.problem, leaf.remedy) for _, name, _, _ in string.Formatter().parse(text)}
    assert {field.name for field in fields(leaf)} <= said


@pytest.mark.parametrize("leaf", LEAVES)
def test_each_error_comes_back_from_another_process_unchanged(leaf: type[HeadwaterError]) -> None:
    error = example(leaf)
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is leaf
    assert (back.facts(), str(back)) == (error.facts(), str(error))


def test_the_drawing_at_the_top_of_the_module_is_the_tree() -> None:
    drawing = (errors.__doc__ or "").partition("Each class has")[0]
    drawn = [line for line in drawing.splitlines() if re.search(r"[├└]", line)]
    tree: dict[str, list[str]] = {}
    for line in drawn:
        names = re.findall(r"\b[A-Z]\w+", line)
        if line.lstrip().startswith(("├", "└")) and not line.startswith(("    │", "        ")):
            branch = names[0]
            tree[branch] = []
        else:
            tree[branch] += names
    assert {branch: sorted(leaves) for branch, leaves in tree.items()} == {
        branch.__name__: sorted(leaf.__name__ for leaf in below(branch)) for branch in BRANCHES
    }


def test_every_error_class_of_the_module_is_a_branch_or_a_leaf() -> None:
    classes = {kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, HeadwaterError)}
    assert classes == {HeadwaterError, *BRANCHES, *LEAVES}


def test_no_other_module_grows_a_branch_of_its_own() -> None:
    kinds: list[type[HeadwaterError]] = [HeadwaterError, *BRANCHES, *LEAVES]
    tree = {kind.__name__ for kind in kinds}
    elsewhere = [
        f"{path}: {name}"
        for path, text in modules().items()
        if path.name != "errors.py"
        for name, bases in re.findall(r"^ *class (\w+)\(([^)]*)\)", text, flags=re.MULTILINE)
        if tree & {base.strip().rpartition(".")[2] for base in bases.split(",")}
    ]
    assert elsewhere == [], "a way to fail belongs into headwater/errors.py, where people look for it"


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
