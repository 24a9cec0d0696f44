"""The log over HTTP, compared with the embedded log in the same run."""
