"""What tests of gateways share."""

from tests.servers import mosquitto as mosquitto
