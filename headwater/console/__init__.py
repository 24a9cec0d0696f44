"""The console: pages over a log and the apps on it, on the server's own port, under `/console`.

`served_with_console` serves a running app with it, `console_for_server` adds it to a served log. There is a folder for
each noun, with its pages and what they show; `kit` has what pages are made of.
"""

from headwater.console.mount import console_for_server, page_of, served_with_console
from headwater.console.pages import PATH

__all__ = ["PATH", "console_for_server", "page_of", "served_with_console"]
