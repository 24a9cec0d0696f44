"""Benchmarks of Headwater, of the hardware's limits and of peers, in one run: `make bench NAME=log`."""
