"""The pictures of operators: one module each, with a function `picture` that returns a `Timeline`.

`python -m tools.timelines` draws them all into docs/images/operators, under the module's name with `-` for `_`; a test
sees that what lies there is what would be drawn. A new one: copy tumbling.py, say what happens, draw, look at it.
"""

from tools.timelines.timeline import Lane, Timeline

__all__ = ["Lane", "Timeline"]
