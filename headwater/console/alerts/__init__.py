"""Alert rules, and what fired."""
