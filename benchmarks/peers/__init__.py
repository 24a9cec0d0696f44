"""Nine workloads on Headwater and on bare Spark, with the same sink and with checked answers; see `__main__`."""
