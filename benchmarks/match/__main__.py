"""`python -m benchmarks.match`: three patterns over the same events, and a thousand rules at once."""

from __future__ import annotations

from benchmarks.harness import main
from benchmarks.match import flink
from benchmarks.match.grammar import grammar
from benchmarks.match.native import abc_native, abc_native10, others
from benchmarks.match.rules import rules_1000

PARTS = {
    "abc.native": abc_native,
    "abc.native10": abc_native10,
    "patterns": others,
    **flink.PARTS,
    "rules_1000": rules_1000,
    "grammar": grammar,
}

if __name__ == "__main__":
    main("match", PARTS)
