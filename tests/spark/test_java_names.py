"""A Java name is resolved once; what Java may still learn is asked again."""

from __future__ import annotations

from typing import Any

import pytest
from py4j.java_gateway import GatewayClient, GatewayProperty, JavaClass, JavaPackage, JVMView  # type: ignore[import-untyped]
from py4j.protocol import SUCCESS_CLASS, SUCCESS_PACKAGE  # type: ignore[import-untyped]

from headwater.spark.java import keep_resolved_names

CLASSES = {"java.util.UUID", "SparkSession"}


class Gateway(GatewayClient):  # type: ignore[misc]  # py4j has no types
    """Answers as the JVM does: a class that it knows, else a package."""

    def __init__(self) -> None:
        super().__init__(gateway_property=GatewayProperty(auto_field=False, pool=None))  # connects to nothing yet
        self.converters: list[object] = []
        self.asked: list[str] = []

    def send_command(self, command: str, *_arguments: Any, **_options: Any) -> str:
        name = command.splitlines()[2]
        self.asked.append(name)
        return f"{SUCCESS_CLASS}{name}" if name in CLASSES else str(SUCCESS_PACKAGE)


@pytest.fixture
def gateway() -> Gateway:
    return Gateway()


@pytest.fixture
def jvm(gateway: Gateway) -> Any:  # Any: as py4j says
    view = JVMView(gateway, "default", id="j")
    keep_resolved_names(view)
    return view


def test_a_class_and_its_packages_are_asked_for_once(jvm: Any, gateway: Gateway) -> None:
    first = jvm.java.util.UUID
    asked = list(gateway.asked)
    assert len(asked) == 3
    assert jvm.java.util.UUID is first
    assert isinstance(first, JavaClass)
    assert gateway.asked == asked


def test_a_class_that_is_not_there_yet_is_asked_for_again(jvm: Any) -> None:
    assert isinstance(jvm.Later, JavaPackage)
    CLASSES.add("Later")
    try:
        assert isinstance(jvm.Later, JavaClass)
    finally:
        CLASSES.remove("Later")


def test_a_view_is_prepared_once(jvm: Any) -> None:
    before = type(jvm)
    keep_resolved_names(jvm)
    assert type(jvm) is before
