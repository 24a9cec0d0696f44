"""The commands, one module per noun: each parses its arguments, calls a service and prints the answer."""
