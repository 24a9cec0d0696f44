"""The console: pages over a log and the apps on it, on the server's own port. One file in `screens/` for each screen.

`served_with_console` serves a running app with it, `console_for_server` adds it to a served log; the pages are under
`/console`. A screen is a function that `screen(...)` decorates; it finds what to show in the `Context`, and makes it of
the `parts`.
"""

from headwater.console.mount import PATH, console_for_server, page_of, served_with_console

__all__ = ["PATH", "console_for_server", "page_of", "served_with_console"]
