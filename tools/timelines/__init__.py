"""The pictures of operators: one module each, with a function `picture` that returns a `Timeline`.

`python -m tools.timelines` draws all pictures into docs/images/operators. The name of a picture is the name of its module,
with `-` for `_`. A test compares the stored pictures with newly drawn ones. To add a picture, copy tumbling.py, describe
what happens, draw it, and look at it.
"""

from tools.timelines.timeline import Lane, Timeline

__all__ = ["Lane", "Timeline"]
