"""SQL over topics and views."""
