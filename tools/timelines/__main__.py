"""Draw the pictures of all operators."""

from __future__ import annotations

from tools.timelines.pictures import FOLDER, pictures

if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, drawn in pictures().items():
        (FOLDER / f"{name}.svg").write_text(drawn)
        print(f"docs/images/operators/{name}.svg")
