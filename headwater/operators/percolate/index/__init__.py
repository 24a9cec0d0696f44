"""The index of stored queries: queries as arrays, found by terms and ranges, matched against batches of documents."""
