"""A throw-away certificate for loopback, and an authority that vouches for it."""

from collections.abc import Sequence
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

_VALID_FROM = datetime(2020, 1, 1, tzinfo=UTC)
_VALID_TO = datetime(2120, 1, 1, tzinfo=UTC)


def write_certificates(directory: Path, address: str, names: Sequence[str]) -> tuple[Path, Path]:
    """Write a bundle with the authority, and a file with the server's key and certificate; return both paths.

    Needs the package cryptography; ImportError that says so where it is missing.
    """
    try:
        from cryptography import x509  # noqa: PLC0415 - only for TLS
        from cryptography.hazmat.primitives import serialization  # noqa: PLC0415
        from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415
    except ImportError as error:
        raise ImportError("the S3 emulator's TLS makes its certificate with: pip install cryptography") from error
    authority_key = ec.generate_private_key(ec.SECP256R1())
    server_key = ec.generate_private_key(ec.SECP256R1())
    authority = _certificate("ckptier test authority", authority_key, None, authority_key, [])
    hosts: list[x509.GeneralName] = [x509.IPAddress(ip_address(address)), *(x509.DNSName(name) for name in names)]
    server = _certificate("ckptier test server", server_key, authority, authority_key, hosts)
    pem = serialization.Encoding.PEM
    private = server_key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    bundle, chain = directory / "authority.pem", directory / "server.pem"
    bundle.write_bytes(authority.public_bytes(pem))
    chain.write_bytes(private + server.public_bytes(pem))
    return bundle, chain


def _certificate(
    name: str,
    key: "EllipticCurvePrivateKey",
    issuer: "x509.Certificate | None",
    issuer_key: "EllipticCurvePrivateKey",
    hosts: "Sequence[x509.GeneralName]",
) -> "x509.Certificate":
    from cryptography import x509  # noqa: PLC0415 - only for TLS
    from cryptography.hazmat.primitives import hashes  # noqa: PLC0415
    from cryptography.x509.oid import NameOID  # noqa: PLC0415

    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    is_authority = issuer is None
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.subject if issuer is not None else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_VALID_FROM)
        .not_valid_after(_VALID_TO)
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
    )
    if is_authority:
        usage = x509.KeyUsage(
            digital_signature=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=True,
            crl_sign=True,
            encipher_only=False,
            decipher_only=False,
        )
        builder = builder.add_extension(usage, critical=True)
    else:
        builder = builder.add_extension(x509.SubjectAlternativeName(hosts), critical=False)
    return builder.sign(issuer_key, hashes.SHA256())
