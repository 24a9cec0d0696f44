"""What pages are made of: tables, charts, tiles, dialogs, editors."""
