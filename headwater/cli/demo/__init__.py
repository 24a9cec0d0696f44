"""A live tour of the log: a shop of several processes around one folder, watched while one of them is killed.

`shop` says what there is, `workers` are the processes, `watching` looks at the log, `screen` and `lines` show what it
saw, `reckoning` counts at the end, and `command` directs it all.
"""
