"""The log beside its limits and its peers."""
