"""Consumer groups: their lag and their members, and where they go on."""
