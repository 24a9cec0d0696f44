"""An app under a steady load for half an hour: does anything grow that should not?"""
