"""A small world that never stands still: people read, search, pay and write; machines get warm; newspapers appear.

All chance comes from one seed, and time is given: the same calls make the same rows.
"""

from headwater.demo.world.happening import Row, Rows
from headwater.demo.world.machines import END_OF_DAY
from headwater.demo.world.world import World

__all__ = ["END_OF_DAY", "Row", "Rows", "World"]
