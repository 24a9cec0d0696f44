"""The demo on a terminal: `headwater demo` shows a company at work, `demo crash` kills it, `demo log` tours the log alone.

`command` has the three commands. `director`, `process` and `display` run the company of `examples/company`: what happens
when, the process that runs the app, and what is shown. `log_tour`, `log_workers` and `log_scene` are the tour of the
log: what happens when, its processes, and what is shown.
"""
