"""What a cluster, a shared store and a fail-over cost: one folder, one module per part."""
