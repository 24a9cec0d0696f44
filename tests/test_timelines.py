"""The pictures in the documentation are those that are drawn, and hold what they should."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest

from tools.timelines.pictures import FOLDER, pictures

PICTURES = pictures()


@pytest.mark.parametrize("name", sorted(PICTURES))
def test_what_lies_in_the_documentation_is_what_is_drawn(name: str) -> None:
    stored = (FOLDER / f"{name}.svg").read_text()
    assert stored == PICTURES[name], "draw it: python -m tools.timelines"


@pytest.mark.parametrize("name", sorted(PICTURES))
def test_a_picture_says_in_words_what_it_shows(name: str) -> None:
    root = ElementTree.fromstring(PICTURES[name])
    words = {child.tag.split("}")[1]: child.text for child in root if child.tag.endswith(("title", "desc"))}
    assert words["title"]
    assert len(words["desc"] or "") > 40


def test_every_picture_is_drawn_by_somebody() -> None:
    assert {path.stem for path in FOLDER.glob("*.svg")} == PICTURES.keys()
