"""HTTPS: a certificate that the client trusts, and one that it does not."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from headwater.cli.app import run
from headwater.errors import ArgumentInvalid
from headwater.http import Address, Tokens, served
from headwater.http.server import check
from headwater.log import Log
from headwater.log import open as open_log
from headwater.log.errors import ServerUnreachable
from headwater.views import RemoteView


def certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that vouches for itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    files = folder / "certificate.pem", folder / "key.pem"
    files[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return files


def test_rows_go_over_https_to_whom_the_client_trusts(
    log: Log, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    public, private = certificate(tmp_path)
    with served(log, Address(port=0, certificate=public, key=private)) as address:
        assert address.startswith("https://")
        with open_log(address, certificates=public) as remote:
            remote.create("t", "id int64")
            remote.append("t", [{"id": 1}])
        with open_log(address) as stranger, pytest.raises(ServerUnreachable, match="certificate"):
            stranger.topics()
        for spelt in (address, address.replace("https", "HTTPS")):
            with pytest.raises(ServerUnreachable, match="certificate"):
                RemoteView("spend", address=spelt).describe()
        listed = run(["view", "list", "--log", address])
        assert (listed, "certificate" in capsys.readouterr().err) == (1, True)
    assert log.read("t").count() == 1


def test_a_certificate_without_its_key_is_refused(tokens: Tokens, tmp_path: Path) -> None:
    with pytest.raises(ArgumentInvalid, match="its key"):
        check(Address(certificate=tmp_path / "certificate.pem"), tokens)
