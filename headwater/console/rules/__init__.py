"""Tables of rules and stored searches: listed, edited, tried on past rows."""
