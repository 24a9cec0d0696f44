"""A dialog that asks for confirmation before something is changed."""

from __future__ import annotations

from html import escape
from types import TracebackType
from typing import Self

from nicegui import ui

from headwater.console.kit.controls import button
from headwater.console.kit.layout import block, note, subtitle


class Question:
    """A dialog that is filled inside `with`, and answered by one of two buttons."""

    def __init__(self, title: str, *, yes: str, danger: bool = False) -> None:
        self._dialog = ui.dialog().props(f'aria-label="{escape(title)}"')
        with self._dialog, block("card narrow stack"):
            subtitle(title)
            self._body = block("stack")
            with block("row-flex end"):
                button("Cancel", lambda: self._dialog.submit(False), kind="ghost")
                self._yes = button(yes, lambda: self._dialog.submit(True), kind="danger" if danger else "primary")

    def refuse(self, why: str) -> None:
        """Say why it cannot be done now, and disable the button."""
        with self._body:
            note(why, "bad").props('role="alert"')
        self._yes.disable()

    async def answered(self) -> bool:
        """Ask, and wait for the answer; closing the dialog means no."""
        answer = await self._dialog
        if not self._dialog.is_deleted:  # the page may have been closed, and the dialog with it
            self._dialog.delete()
        return bool(answer)

    def __enter__(self) -> Self:
        self._body.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._body.__exit__(kind, error, trace)


async def confirm(title: str, *sentences: str, yes: str, danger: bool = False) -> bool:
    """Ask a question that needs no more than some sentences."""
    with Question(title, yes=yes, danger=danger) as question:
        for text in sentences:
            ui.label(text)
    return await question.answered()
