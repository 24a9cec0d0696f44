"""Producers, consumers and consumer groups, for every kind of log."""

from headwater.log.clients.client_set import ClientSet
from headwater.log.clients.consumer import Consumer, NearExpiry
from headwater.log.clients.groups import GroupInfo, Groups, MemberInfo, SeekStep
from headwater.log.clients.producer import Failure, Producer, ProducerStats
from headwater.log.clients.producer_buffer import Limit

__all__ = [
    "ClientSet",
    "Consumer",
    "Failure",
    "GroupInfo",
    "Groups",
    "Limit",
    "MemberInfo",
    "NearExpiry",
    "Producer",
    "ProducerStats",
    "SeekStep",
]
