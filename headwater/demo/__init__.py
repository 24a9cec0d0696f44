"""The demo: a small company in motion, watched while it runs, and recomputed at the end.

`company` is the app with all its queries, `world` makes the rows, `feeding` appends them, `running` is the process that
runs the app, `following` asks how it does, `directing` leads through it, and `checking` recomputes every output from the
input topics.
"""
