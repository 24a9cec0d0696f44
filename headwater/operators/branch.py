"""`Branch`: one stream split into several, by named conditions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Union

from headwater.errors import ArgumentInvalid

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Condition = Union[str, "Column"]


@dataclass(frozen=True, kw_only=True)
class Branch:
    """Split rows by named conditions: SQL, or columns of Spark's. A condition that is null is not met.

    With `match="first"` a row goes to the first branch whose condition it meets, with `"all"` to each of them. Rows that
    meet none go to the branch called `other`, and nowhere if there is none. Called with a DataFrame it returns one for
    each branch; `label` puts the name of the branch into a column instead, so that one query can write them all:
    `Branch(…).label(rows, column="_topic")`.

    >>> Branch(cases={"large": "amount > 500", "small": "amount <= 500"}, other="unknown").names
    ('large', 'small', 'unknown')
    """

    cases: Mapping[str, Condition]
    match: Literal["first", "all"] = "first"
    other: str | None = None

    def __post_init__(self) -> None:
        from pyspark.sql import Column

        if self.match not in ("first", "all"):
            raise ArgumentInvalid(name="match", value=self.match, expected='"first" or "all"')
        if not self.cases:
            raise ArgumentInvalid(name="cases", value=self.cases, expected='conditions, as {"large": "amount > 500"}')
        for name, condition in self.cases.items():
            if not isinstance(condition, str | Column):
                raise ArgumentInvalid(name=f"cases[{name!r}]", value=condition, expected="SQL or a column of Spark's")
        if self.other in self.cases:
            raise ArgumentInvalid(name="other", value=self.other, expected="a name that no case has")

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.cases, *([] if self.other is None else [self.other]))

    def __call__(self, rows: DataFrame) -> dict[str, DataFrame]:
        """The rows of each branch, by its name."""
        return {name: rows.where(condition) for name, condition in self._conditions(rows).items()}

    def label(self, rows: DataFrame, *, column: str = "branch") -> DataFrame:
        """The rows with the name of their branch; with `match="all"`, a row comes once for each of its branches."""
        from pyspark.sql import functions as F  # noqa: N812 - the name that all of Spark's users know

        if column in rows.columns:
            raise ArgumentInvalid(name="column", value=column, expected="a name that the rows do not have yet")
        names = [F.when(condition, F.lit(name)) for name, condition in self._conditions(rows).items()]
        return rows.withColumn(column, F.explode(F.array_compact(F.array(*names))))

    def _conditions(self, rows: DataFrame) -> dict[str, Column]:
        """What makes a row one of each branch."""
        from pyspark.sql import functions as F  # noqa: N812

        found: dict[str, Column] = {}
        before = F.lit(False)
        for name, condition in self.cases.items():
            met = F.coalesce(F.expr(condition) if isinstance(condition, str) else condition, F.lit(False))
            self._check(rows, name, met)
            found[name] = met & ~before if self.match == "first" else met
            before = before | met
        if self.other is not None:
            found[self.other] = ~before
        return found

    def _check(self, rows: DataFrame, name: str, met: Column) -> None:
        """Raise on a condition that cannot be evaluated over these rows, with a shorter message than Spark's."""
        from pyspark.errors import AnalysisException, ParseException

        try:
            kind = rows.select(met.alias("met")).schema["met"].dataType.typeName()
        except (AnalysisException, ParseException) as error:
            why = str(error).split("SQLSTATE")[0].strip().splitlines()[0]
            expected = f"a condition over the columns {', '.join(rows.columns)} ({why})"
            raise ArgumentInvalid(name=f"cases[{name!r}]", value=str(self.cases[name]), expected=expected) from error
        if kind != "boolean":
            raise ArgumentInvalid(
                name=f"cases[{name!r}]", value=f"of type {kind}", expected="a condition, true or false"
            )
