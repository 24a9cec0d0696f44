"""How fast a log is over HTTP, beside the embedded one in the same run."""
