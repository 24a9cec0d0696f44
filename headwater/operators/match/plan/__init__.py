"""What of a rule is computed where, and the program that the kernel runs."""
