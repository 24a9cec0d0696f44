"""What pages are made of: tables, tiles, charts, explanations, questions before anything is changed."""
