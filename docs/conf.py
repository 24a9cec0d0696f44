"""Settings of Sphinx: Markdown by MyST, in the theme furo. `make docs` treats warnings as errors."""

from __future__ import annotations

from importlib.metadata import version as version_of

project = "Headwater"
author = "The Headwater authors"
project_copyright = author
version = release = version_of("headwater")

extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
root_doc = "index"
nitpicky = True

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = f"Headwater {version}"
html_show_sphinx = False
html_copy_source = False
# Blocks without a language are plain text.
highlight_language = "text"
pygments_style = "friendly"
pygments_dark_style = "github-dark"
