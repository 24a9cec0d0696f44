"""The HTTP API over a log: `headwater serve`, or `application(log)` in an ASGI server of your own."""

from headwater.server.application import Mount, application
from headwater.server.serving import Address, served
from headwater.server.settings import Settings
from headwater.server.tokens import Caller, Scope, Token, Tokens

__all__ = ["Address", "Caller", "Mount", "Scope", "Settings", "Token", "Tokens", "application", "served"]
