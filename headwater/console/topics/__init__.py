"""Topics and their rows: listed, browsed, followed, searched, produced."""
