"""Work queues: each message goes to one worker of each group, and is delivered again if that worker fails."""

from headwater.queues.config import QueueConfig, QueueSettings
from headwater.queues.errors import LeaseLost, QueueExists, QueueFull
from headwater.queues.exchange import Binding, Exchange, exchanges
from headwater.queues.location import delete_queue, open_exchange, open_queue, queues
from headwater.queues.message import Message, Outgoing
from headwater.queues.publisher import Publisher
from headwater.queues.queue import Queue
from headwater.queues.remote import RemoteExchange, RemoteQueue
from headwater.queues.retry import Retry
from headwater.queues.stats import QueueStats
from headwater.queues.transaction import QueueTransaction
from headwater.queues.work_queue import QueueConsumer, WorkQueue
from headwater.queues.worker import Worker, worker

__all__ = [
    "Binding",
    "Exchange",
    "LeaseLost",
    "Message",
    "Outgoing",
    "Publisher",
    "Queue",
    "QueueConfig",
    "QueueConsumer",
    "QueueExists",
    "QueueFull",
    "QueueSettings",
    "QueueStats",
    "QueueTransaction",
    "RemoteExchange",
    "RemoteQueue",
    "Retry",
    "WorkQueue",
    "Worker",
    "delete_queue",
    "exchanges",
    "open_exchange",
    "open_queue",
    "queues",
    "worker",
]
