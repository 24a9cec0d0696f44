"""Windows: what each kind costs, beside Spark's own stateful aggregation over the same rows."""
