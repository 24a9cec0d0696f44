"""Dead letters: counted, looked at, redriven, parked."""
