"""What it costs to match documents against stored queries."""
