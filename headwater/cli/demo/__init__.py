"""The demo on a terminal: `headwater demo` shows a company at work, `demo crash` kills it, `demo log` tours the log alone.

`command` has the three commands, and `stage` shows the company of `headwater.demo`. All else is the tour of the log:
`shop` says what there is, `workers` are the processes, `watching` looks at the log, `screen` and `lines` show what it
saw, `reckoning` counts at the end, and `tour` directs it.
"""
