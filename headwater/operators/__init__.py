"""Operators: values that map a DataFrame to a DataFrame, on streams and on bounded data alike."""

from headwater.operators.dedupe import Dedupe
from headwater.operators.process import Process

__all__ = ["Dedupe", "Process"]
