"""The OpenAPI document, tried out: schemathesis makes requests from it, and no answer may break what it promises."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import Phase, given
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from headwater.config import Config
from headwater.http import Settings, application
from headwater.log import open as open_log
from tests.laws import costly

CHECKS = (not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance)

#: Told apart so that a failure says in which part of the document it is.
PARTS = 4


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder: Path = tmp_path_factory.mktemp("openapi")
    with open_log(folder / "log", config=Config(maintenance="manual")) as log:
        log.create("orders", "id int64, user string", key="user", partitions=2, durability="os")
        log.append("orders", [{"id": 1, "user": "ada"}])
        log.commit_offsets("billing", "orders", {0: 0})
        # Nothing may hold the run up: waits end at once, tails are not followed, and all requests are let through.
        bounds = Settings(wait_seconds_max=0.001, requests_per_second_max=1e9, streams_max=10**9)
        yield schemathesis.openapi.from_asgi(
            "/api/openapi.json",
            application(log, settings=bounds, host="", confined=False),
        )


@pytest.mark.law  # it states one for each operation, which pytest does not see
@pytest.mark.parametrize("part", range(PARTS))
def test_no_request_gets_an_answer_that_the_document_does_not_promise(api: Any, part: int) -> None:
    operations = [found.ok() for found in api.get_all_operations()]
    assert len(operations) > 60
    for operation in operations[part::PARTS]:
        if not operation.path.endswith("/tail"):  # it never ends

            @costly(6, phases=[Phase.generate])
            @given(case=operation.as_strategy())
            def answered(case: Any) -> None:
                case.call_and_validate(checks=CHECKS)

            answered()


def test_every_path_says_what_it_does(tmp_path: Path) -> None:
    with open_log(tmp_path / "log") as log:
        document = application(log).openapi()
    silent = [
        f"{method} {path}"
        for path, methods in document["paths"].items()
        for method, about in methods.items()
        if not about.get("description")
    ]
    assert silent == []
    assert document["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
