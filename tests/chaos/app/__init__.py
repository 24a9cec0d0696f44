"""A whole App that is killed again and again, with its views and its sinks."""
