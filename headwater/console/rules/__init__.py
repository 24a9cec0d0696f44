"""Rules and stored searches, and what they match."""
