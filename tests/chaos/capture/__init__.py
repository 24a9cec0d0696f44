"""The series that kills a capture: a database under load, cut and restarted, and its topics compared with its tables."""
