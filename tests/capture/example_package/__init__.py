"""A package of another author: a source and a target, which Headwater finds by its entry points."""
