"""Names of people, places and things."""

from __future__ import annotations

PEOPLE = (
    "Ada", "Ben", "Chloe", "Dilan", "Emma", "Farid", "Greta", "Hugo", "Ines", "Jonas",
    "Kaya", "Leo", "Mira", "Nils", "Olga", "Pablo", "Quinn", "Rosa", "Sami", "Tara",
)  # fmt: skip
CITIES = ("Amsterdam", "Berlin", "Copenhagen", "Lisbon", "Lyon", "Milan", "Porto", "Vienna")
PAGES = (
    "/", "/shoes", "/coats", "/lamps", "/chairs", "/tables", "/mugs", "/pens", "/scarves", "/bags",
    "/bikes", "/tents", "/books", "/games", "/plants", "/sale", "/cart", "/checkout", "/help", "/jobs",
)  # fmt: skip
SHOPS = ("Corner Bakery", "City Books", "Harbour Hotel", "Green Grocer", "Night Bar", "Phone House", "Rail Tickets")
#: What people search for, the address that is shown first, and how many of them click on it.
RESULTS = (
    ("running shoes", "example.com/shoes", 0.32),
    ("winter coat", "example.com/coats", 0.21),
    ("desk lamp", "example.com/lamps", 0.16),
    ("oak table", "example.com/tables", 0.12),
    ("camping tent", "example.com/tents", 0.27),
    ("city bike", "example.com/bikes", 0.24),
    ("coffee mug", "example.com/mugs", 0.09),
    ("board game", "example.com/games", 0.18),
)
