"""Measurements, ours beside limits and peers, in one run: `make bench NAME=log`."""
