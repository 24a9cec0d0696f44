"""A sheet of characters on which lines join where they meet."""

from __future__ import annotations

from rich.cells import cell_len

UP, DOWN, LEFT, RIGHT = 1, 2, 4, 8
#: The sign for each set of ways that leave a place.
_JOINTS = {
    0: " ",
    UP | DOWN: "│",
    LEFT | RIGHT: "─",
    DOWN | RIGHT: "┌",
    DOWN | LEFT: "┐",
    UP | RIGHT: "└",
    UP | LEFT: "┘",
    UP | DOWN | RIGHT: "├",
    UP | DOWN | LEFT: "┤",
    DOWN | LEFT | RIGHT: "┬",
    UP | LEFT | RIGHT: "┴",
    UP | DOWN | LEFT | RIGHT: "┼",
    UP: "╵",
    DOWN: "╷",
    LEFT: "╴",
    RIGHT: "╶",
}


class Canvas:
    """Places by column and row; text lies above lines.

    >>> canvas = Canvas()
    >>> for way, column in ((RIGHT, 0), (LEFT | DOWN, 1)):
    ...     canvas.join(column, 0, way)
    >>> canvas.write(3, 0, "a")
    >>> canvas.lines()
    ['╶┐ a']
    """

    def __init__(self) -> None:
        self._ways: dict[tuple[int, int], int] = {}
        self._text: dict[tuple[int, int], str] = {}

    def join(self, column: int, row: int, ways: int) -> None:
        """Let lines leave a place in these directions as well."""
        self._ways[row, column] = self._ways.get((row, column), 0) | ways

    def write(self, column: int, row: int, text: str) -> None:
        """Write text from a place on; wide characters take two."""
        for letter in text:
            width = cell_len(letter)
            if width == 0 and (row, column - 1) in self._text:
                self._text[row, column - 1] += letter  # an accent belongs to the letter before
                continue
            self._text[row, column] = letter
            if width == 2:
                self._text[row, column + 1] = ""
            column += width

    def lines(self) -> list[str]:
        """All rows, without blanks at their ends."""
        places = [*self._ways, *self._text]
        if not places:
            return []
        width = max(column for _, column in places) + 1
        return ["".join(self._at(row, column) for column in range(width)).rstrip() for row in range(max(places)[0] + 1)]

    def _at(self, row: int, column: int) -> str:
        text = self._text.get((row, column))
        return _JOINTS[self._ways.get((row, column), 0)] if text is None else text
