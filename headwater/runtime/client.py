"""Asking the process that runs an app, from any other process of the same user."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headwater import errors
from headwater.errors import HeadwaterError, RunnerNotFound
from headwater.runtime.home import Home, Runner

TIMEOUT_SECONDS = 900.0


def find_runner(home: Path) -> Runner | None:
    """Who runs the app of this folder now; None where nobody does, whatever a dead process has left behind."""
    place = Home(home)
    return place.runner() if place.is_held() else None


class Client:
    """Calls the local API of a running app."""

    def __init__(self, app: str, home: Path, *, seconds_max: float = TIMEOUT_SECONDS) -> None:
        runner = find_runner(home)
        if runner is None:
            raise RunnerNotFound(app=app)
        self._app = app
        self._seconds_max = seconds_max
        self.runner = runner

    # Any: whatever JSON the API answers with.
    def get(self, path: str, **parameters: Any) -> Any:
        return self._answer("GET", path, parameters)

    def post(self, path: str, **parameters: Any) -> Any:
        return self._answer("POST", path, parameters)

    def delete(self, path: str, **parameters: Any) -> Any:
        return self._answer("DELETE", path, parameters)

    def _answer(self, method: str, path: str, parameters: dict[str, Any]) -> Any:
        import httpx

        given = {name: value for name, value in parameters.items() if value is not None}
        try:
            response = httpx.request(
                method,
                f"{self.runner.address}/v1{path}",
                params=given,
                headers={"Authorization": f"Bearer {self.runner.token}"},
                timeout=self._seconds_max,
                verify=not self.runner.address.lower().startswith(
                    "http:"
                ),  # or each call reads the machine's certificates
                trust_env=False,  # a proxy has no way to this machine's own loopback
            )
        except httpx.TransportError as error:
            raise RunnerNotFound(app=self._app) from error
        if response.is_error:
            raise failure_of(response.status_code, _json(response))
        return _json(response) if "json" in response.headers.get("content-type", "") else response.text


def failure_of(status: int, body: Any) -> HeadwaterError:
    """The error that the API has told, as the class it was raised as."""
    told = body if isinstance(body, dict) else {}
    kind = getattr(errors, str(told.get("error")), None)
    if isinstance(kind, type) and issubclass(kind, HeadwaterError):
        try:
            return kind(**told.get("facts", {}))
        except TypeError:
            pass
    message = str(told.get("message") or f"the API answered {status}")
    return errors.QueryFailed(query="", why=message)


def _json(response: Any) -> Any:
    try:
        return response.json()
    except ValueError:
        return {}
