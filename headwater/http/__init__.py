"""The HTTP API over a log: `headwater serve`, or `application(log)` in an ASGI server of your own."""

from headwater.http.application import Mount, application
from headwater.http.server import Address, served
from headwater.services.callers import Caller, Scope
from headwater.services.settings import Settings
from headwater.services.tokens import Token, Tokens

__all__ = ["Address", "Caller", "Mount", "Scope", "Settings", "Token", "Tokens", "application", "served"]
