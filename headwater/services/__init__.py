"""What can be done with a log, noun by noun: the same for the command line, the console and the HTTP API."""

from headwater.services.audit import Audit
from headwater.services.callers import Caller, Scope
from headwater.services.services import Services, app_services, local, remote_services
from headwater.services.settings import Settings
from headwater.services.tokens import Token, Tokens

__all__ = [
    "Audit",
    "Caller",
    "Scope",
    "Services",
    "Settings",
    "Token",
    "Tokens",
    "app_services",
    "local",
    "remote_services",
]
