"""A Dockerfile as stages with their instructions."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One image that a file builds: what it begins with, and its instructions in order."""

    name: str
    base: str
    instructions: list[tuple[str, str]] = field(default_factory=list)

    def of(self, instruction: str) -> list[str]:
        return [text for name, text in self.instructions if name == instruction]


def stages_of(path: Path) -> dict[str, Stage]:
    text = re.sub(r"^\s*#.*\n", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    stages: dict[str, Stage] = {}
    for line in re.sub(r"\\\n\s*", " ", text).splitlines():
        if not line.strip():
            continue
        name, _, rest = line.strip().partition(" ")
        if name == "FROM":
            base, _, stage = rest.partition(" AS ")
            stages[stage] = current = Stage(name=stage, base=base)
        else:
            current.instructions.append((name, rest.strip()))
    return stages


def with_bases(stages: dict[str, Stage], name: str) -> list[Stage]:
    """A stage and those that it begins with, the first base first."""
    stage = stages[name]
    return [*(with_bases(stages, stage.base) if stage.base in stages else []), stage]


def last(chain: list[Stage], instruction: str) -> str:
    """The instruction that counts: the last one."""
    return [text for stage in chain for text in stage.of(instruction)][-1]


def listed(text: str) -> list[str]:
    """An argument in the form of a JSON list."""
    words: list[str] = json.loads(text)
    return words


def environment(chain: list[Stage]) -> dict[str, str]:
    pairs = [word for stage in chain for text in stage.of("ENV") for word in text.split()]
    return dict(pair.split("=", 1) for pair in pairs)
