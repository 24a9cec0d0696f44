"""The search as machine code: everything that runs once per row, over flat arrays."""
