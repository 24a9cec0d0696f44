"""Writing Arrow rows to PostgreSQL: types, COPY, and the statements around it. Sinks and views share it.

The modules are imported by name, for `writer` needs the package `psycopg` and `copy` does not.
"""
