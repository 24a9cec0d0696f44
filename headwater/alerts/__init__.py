"""Alert rules over lag, watermarks, dead letters, queries and views: states, history and notifications."""

from headwater.alerts.delivery import Channels, Delivery, Mail, Sender
from headwater.alerts.log_measures import LogMeasures
from headwater.alerts.measurements import Measures
from headwater.alerts.rule import Rule
from headwater.alerts.state import AlertState, Change, Measurement, Summary
from headwater.alerts.store import AlertStore, Listener
from headwater.alerts.watcher import Watcher

__all__ = [
    "AlertState",
    "AlertStore",
    "Change",
    "Channels",
    "Delivery",
    "Listener",
    "LogMeasures",
    "Mail",
    "Measurement",
    "Measures",
    "Rule",
    "Sender",
    "Summary",
    "Watcher",
]
