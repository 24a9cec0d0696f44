"""Random conditions that look at other rows in less usual ways: texts, CASE, COALESCE, numbers of matches."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from headwater.operators.match.language.rule import Call, Classifier, Constant, Expression, Fold, MatchNumber, Reference

KIND, AMOUNT = Reference("kind", here=True), Reference("amount", here=True)


def looking_back(variables: tuple[str, ...], own: str) -> st.SearchStrategy[Expression]:
    """Conditions of the variable `own`; "U" may be a union that holds it."""
    where = st.sampled_from([None, *variables])

    def seen(column: str) -> st.SearchStrategy[Expression]:
        def made(variable: str | None, end: Any, offset: int, shift: int) -> Reference:
            # The last row of the variable itself is the row at hand, which is written without LAST.
            least = int(end == "last" and variable in (None, own, "U"))
            return Reference(column, variable, end, offset + least, shift)

        ends, shifts = st.sampled_from(["first", "last"]), st.sampled_from([0, 0, -1, 1])
        return st.builds(made, where, ends, st.integers(0, 1), shifts)

    near = st.sampled_from([-1, 1, -2]).map(lambda shift: Reference("kind", shift=shift, here=True))
    names = st.sampled_from(["=", "<>", "<", ">=", "<=>"])
    whole = st.integers(-3, 3).map(lambda value: Constant(value, pa.int64()))
    half, text = Constant(0.5, pa.float64()), Constant("x", pa.string())
    return st.one_of(
        st.builds(lambda name, one: Call(name, (KIND, one)), names, seen("kind") | near),
        seen("kind").map(lambda one: Call("in", (one, text, KIND))),
        seen("kind").map(lambda one: Call("like", (one, Constant("x%", pa.string())))),
        st.builds(lambda one, value: Call("<=", (Call("coalesce", (one, value)), AMOUNT)), seen("amount"), whole),
        st.builds(
            lambda one, value: Call(">", (Call("-", (AMOUNT, one)), value)), seen("amount") | seen("price"), whole
        ),
        seen("amount").map(lambda one: Call(">", (Call("/", (one, AMOUNT)), half))),
        seen("amount").map(lambda one: Call("case", (Call("is_null", (one,)), TRUE, Call(">", (AMOUNT, one))))),
        where.map(lambda variable: Call("=", (Classifier(variable), Constant("A", pa.string())))),
        where.map(lambda variable: Call("=", (Fold("max", KIND, variable), KIND))),
        st.integers(1, 3).map(lambda number: Call("<", (MatchNumber(), Constant(number, pa.int64())))),
    )


TRUE = Constant(True, pa.bool_())
