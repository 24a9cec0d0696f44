"""What joins share: how two inputs become one, and how rows of one key are found by their times."""
