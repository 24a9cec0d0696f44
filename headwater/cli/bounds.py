"""What a statement over HTTP may take: flags of every command that serves."""

from __future__ import annotations

from typing import Annotated

import typer

StatementSeconds = Annotated[
    float,
    typer.Option("--statement-seconds", help="How long one SQL statement may run.", min=0.001, metavar="SECONDS"),
]
StatementMemory = Annotated[
    str, typer.Option("--statement-memory", help="What one SQL statement may need and give.", metavar="SIZE")
]
AnswerRows = Annotated[int, typer.Option("--answer-rows", help="Rows of one answer in JSON.", min=1, metavar="N")]
