"""The graph of topics, queries, views and sinks."""
