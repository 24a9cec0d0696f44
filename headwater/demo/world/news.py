"""Articles of two sentences, and the searches that readers have stored: one of them is broken on purpose."""

from __future__ import annotations

from datetime import datetime

from headwater.demo.world.happening import Happening, Row, Rows
from headwater.demo.world.names import CITIES

SUBJECTS = (
    (
        "Storm closes the harbour",
        "A storm has closed the harbour since Monday.",
        "Ships wait outside until it is over.",
    ),
    ("Bread gets dearer", "Prices of bread have risen by a tenth.", "Bakers blame the price of energy."),
    ("Milk gets cheaper", "Prices of milk fall for the third month.", "Farmers are not amused."),
    ("Rocket launch delayed", "The rocket launch was put off again.", "A valve did not close in time."),
    ("Football final sold out", "The sport sees its largest football final.", "Tickets were gone within minutes."),
    ("Chess is back", "The oldest sport of the mind fills halls.", "A girl of twelve won the open tournament."),
    ("New tram line", "The council has opened a new tram line.", "It runs every five minutes."),
    ("Storm spares the vineyards", "The storm has passed without damage.", "Growers expect a good year."),
    ("Museum finds a painting", "A painting lay in the cellar for a century.", "Nobody knows who made it."),
    ("Sport for everybody", "The city pays for sport in its parks.", "Courses are free and begin in May."),
)
#: By the id of a search: who has stored it, and what is asked for.
SEARCHES = {
    "harbour in a storm": ("Ines", "storm AND harbour"),
    "cost of breakfast": ("Hugo", "prices AND (bread OR milk)"),
    "sport, but no football": ("Mira", "+sport -football"),
    "to the stars": ("Leo", '"rocket launch"'),
    "news from Lisbon": ("Rosa", "title:lisbon"),
}
BROKEN = {"left open": ("Nils", '"tram line')}


class News:
    per_second = 1.5

    def __init__(self, happening: Happening) -> None:
        self._happening = happening

    def begin(self, _: datetime) -> Rows:
        rows: list[Row] = [
            {"id": name, "query": query, "metadata": {"reader": reader}}
            for name, (reader, query) in (SEARCHES | BROKEN).items()
        ]
        return {"stored_searches": rows}

    def happens(self, at: datetime) -> None:
        world = self._happening
        title, first, second = world.one_of(SUBJECTS)
        row = {
            "article": world.number(),
            "title": f"{world.one_of(CITIES)}: {title}",
            "body": f"{first} {second}",
            "published": at,
        }
        world.comes("articles", row, at=at)
