"""Entities that an app serves: its process decides commands for them."""

from __future__ import annotations

from pathlib import Path

import pytest

import headwater as hw
from headwater.errors import ArgumentInvalid
from headwater.services import app_services
from tests.apps.fixtures import PlainRunner
from tests.sourcing.account import DECIDER, Open


def test_the_server_of_an_app_decides_commands_for_its_entities(tmp_path: Path) -> None:
    with hw.open(tmp_path / "log") as log, hw.Entities(log, "account", DECIDER) as accounts:
        accounts.send("acc-1", Open("Ada"))
        app = hw.App("bank", log=tmp_path / "log", home=tmp_path / "home")
        app.serve_entities(accounts)
        with pytest.raises(ArgumentInvalid, match="no other"):
            app.serve_entities(accounts)
        with PlainRunner(app, columns={}).ready() as runner, app_services(runner.home) as services:
            services.entities.send("account", "acc-1", "Deposit", {"amount": 20})
            assert services.entities.state("account", "acc-1").state["balance"] == 20
        assert accounts.load("acc-1").state.balance == 20
