"""The operator `Percolate`: its task in the workers, the stored queries that it follows, and highlights."""
