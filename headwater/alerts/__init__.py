"""Alert rules over lag, watermarks, dead letters, queries and views; who is told, and what fired when."""

from headwater.alerts.book import Book
from headwater.alerts.channels import Channels, Mail, Sender
from headwater.alerts.deliveries import Delivery
from headwater.alerts.listening import Listener
from headwater.alerts.measures import Measures
from headwater.alerts.measuring import LogMeasures
from headwater.alerts.rule import Rule
from headwater.alerts.standing import Change, Reading, Standing
from headwater.alerts.summary import Summary
from headwater.alerts.watcher import Watcher

__all__ = [
    "Book",
    "Change",
    "Channels",
    "Delivery",
    "Listener",
    "LogMeasures",
    "Mail",
    "Measures",
    "Reading",
    "Rule",
    "Sender",
    "Standing",
    "Summary",
    "Watcher",
]
