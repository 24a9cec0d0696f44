"""A small company in motion: its world, its app, and the check that recomputes every output. See README.md."""
