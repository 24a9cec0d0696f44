"""An app with a lease: of processes on several hosts one runs it, without a lock file that they share."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

import headwater as hw
from headwater.apps.errors import AppLeaseLost
from headwater.apps.runner import Runner
from headwater.errors import InUse
from headwater.log.lease import Lease


def runner(folder: Path, *, seconds: float = 2.0) -> Runner:
    return Runner(hw.App("shop", log=folder / "data", lease=seconds), serve=False)


@pytest.fixture(autouse=True)
def _log(tmp_path: Path) -> None:
    hw.open(tmp_path / "data", create=True).close()


def test_a_process_on_another_host_is_refused_and_runs_the_app_when_the_first_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with runner(tmp_path).ready() as first:
        assert first.home.is_held()
        monkeypatch.setattr(socket, "gethostname", lambda: "another")
        with pytest.raises(InUse, match="--standby") as raised, runner(tmp_path).ready():
            pass
        assert raised.value.by.startswith(socket.gethostname()) is False
    with runner(tmp_path).ready() as second:
        assert second.lease is not None
        assert second.lease.is_mine


def test_a_process_on_the_same_host_is_refused_by_the_lock_at_once(tmp_path: Path) -> None:
    with runner(tmp_path, seconds=3_600).ready(), pytest.raises(InUse), runner(tmp_path, seconds=3_600).ready():
        pass


def test_a_process_whose_lease_is_taken_admits_no_batch_and_ends(tmp_path: Path) -> None:
    with pytest.raises(AppLeaseLost, match="--standby"), runner(tmp_path, seconds=0.5).ready() as first:
        first._check_lease()
        other = Lease(first.log, "app.shop", holder="another", seconds=0.5)
        other._read()
        assert other._taken()
        assert first.wait_for_stop(60)
        with pytest.raises(AppLeaseLost):
            first._check_lease()
    other._stop_renewal()


def test_an_app_without_a_lease_admits_every_batch(tmp_path: Path) -> None:
    with Runner(hw.App("shop", log=tmp_path / "data"), serve=False).ready() as only:
        only._check_lease()
        assert only.lease is None
