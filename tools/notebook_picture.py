"""Draw the cards of a notebook, for light and dark screens, into docs/images: screenshots by Chromium.

python tools/notebook_picture.py
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame

import headwater as hw
from headwater.views import DuckStore, ViewKeeper, ViewSpec
from headwater.views.notebook_card import view_html

IMAGES = Path(__file__).parents[1] / "docs" / "images"
SIZE = "1040,900"
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--hide-scrollbars", "--force-device-scale-factor=2",
)  # fmt: skip
LOOKS = {"light": ("#ffffff", "#1c2733", "#f4f6f8"), "dark": ("#111418", "#e6ebf0", "#1b2026")}


def cards(folder: Path) -> list[tuple[str, str]]:
    """Lines of code as a user types them, each with the card that it shows."""
    app = hw.App("shop", log=folder / "log")

    @app.topic(key="user")
    def large_orders(orders: DataFrame) -> DataFrame:
        return orders

    @app.view(key="minute", late="orders.late")
    def revenue(orders: DataFrame) -> DataFrame:
        return orders

    start = datetime(2026, 1, 1, 10, tzinfo=UTC)
    schema = pa.schema([("minute", pa.timestamp("us", "UTC")), ("revenue", pa.float64()), ("orders", pa.int64())])
    with hw.open(folder / "log") as log:
        log.create("orders", {"user": "string", "item": "string", "amount": "float64", "at": "timestamp"}, key="user")
        log.create("revenue", schema, key="minute", compact=True)
        rows = [(162.0, 2), (96.5, 3), (210.25, 4)]
        log.append(
            "revenue",
            [
                {"minute": start + timedelta(minutes=n), "revenue": sum_, "orders": count}
                for n, (sum_, count) in enumerate(rows)
            ],
        )
        keeper = ViewKeeper(log, DuckStore(folder / "views.duckdb"))
        view = keeper.add(ViewSpec(name="revenue", topic="revenue", key=("minute",), schema=schema))
        keeper.catch_up()
        shown = [
            # The card of an app names the file that declares its queries. Here that file is this tool, so replace its name.
            ("app", app._repr_html_().replace(Path(__file__).name, "shop.py")),
            ('log.topic("orders")', log.topic("orders")._repr_html_()),
            (
                'app.views["revenue"].live(order="minute DESC")',
                view_html(view, order="minute DESC", note="Live."),
            ),
        ]
        keeper.stop()
    return shown


def page(shown: list[tuple[str, str]], look: str) -> str:
    ground, ink, input_ground = LOOKS[look]
    cells = "".join(
        f'<pre style="background:{input_ground};padding:8px 12px;margin:14px 0 8px;border-radius:6px">{line}</pre>{html}'
        for line, html in shown
    )
    return (
        f'<!doctype html><meta charset="utf-8"><meta name="color-scheme" content="{look}">'
        f'<body style="background:{ground};color:{ink};margin:18px 24px;color-scheme:{look}">{cells}</body>'
    )


def main() -> None:
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("There is no Chromium on the PATH.")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shown = cards(folder)
        for look in LOOKS:
            source, target = folder / f"{look}.html", IMAGES / f"notebook-{look}.png"
            source.write_text(page(shown, look), encoding="utf-8")
            subprocess.run(
                [chromium, *FLAGS, f"--user-data-dir={folder / 'profile'}", f"--window-size={SIZE}",
                 f"--screenshot={target}", source.as_uri()],
                check=True, timeout=120, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            print(f"{target} is drawn.")


if __name__ == "__main__":
    main()
