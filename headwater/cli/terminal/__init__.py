"""Input and output of commands: streams, tables, progress, results, and rows in many formats."""
