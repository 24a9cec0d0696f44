"""What approximate answers cost, beside exact ones and beside Spark's own sketches."""
