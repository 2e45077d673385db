"""Signed reports: what is signed does not depend on the layout of the file, and nothing else passes."""

import base64
import json
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from archiver.errors import NotWholeError, UsageError
from archiver.process.values.signed_json import SIGN_KEY, load_key, read_signed, sign

REPORT = {"name": "Zo\u00eb \U0001f600", "rows": [{"b": 1, "a": None}], "passed": True}


@pytest.fixture
def key(tmp_path: Path) -> Ed25519PrivateKey:
    made = Ed25519PrivateKey.generate()
    write(tmp_path / "private.pem", made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    write(tmp_path / "public.pem", made.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return made


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def test_a_report_is_read_back_however_it_is_laid_out(key: Ed25519PrivateKey, tmp_path: Path) -> None:
    signed = sign(REPORT, load_key(SIGN_KEY, tmp_path / "private.pem"))
    public = load_key("--key", tmp_path / "public.pem")
    path = tmp_path / "report"
    for options in ({}, {"indent": 3}, {"ensure_ascii": False, "sort_keys": True}):
        write(path, json.dumps(signed, **options).encode())
        assert read_signed(path, public) == REPORT
    canonical = subprocess.run(["jq", "-jcS", ".report", str(path)], check=True, capture_output=True).stdout
    key.public_key().verify(base64.b64decode(signed["signature"]), canonical)


def test_nothing_else_passes(key: Ed25519PrivateKey, tmp_path: Path) -> None:
    signed, public = sign(REPORT, key), key.public_key()
    text = json.dumps(signed)
    other = sign(REPORT, Ed25519PrivateKey.generate())
    forged = [
        text.replace("true", "false"),
        text.replace('"a": null', '"a": 0'),
        json.dumps(other),
        json.dumps({**signed, "signature": "?"}),
        json.dumps({**signed, "signature": ""}),
        json.dumps(sign(REPORT, None)),
        text.replace('"b": 1', '"b": 1.0'),
        text.replace('"passed": true', '"passed": true, "passed": false'),
        text.replace('"passed": true', '"passed": false, "passed": true'),  # our reader alone takes the last one
    ]
    for one in forged:
        with pytest.raises(NotWholeError, match=r"do not trust the report|is not signed"):
            read_signed(write(tmp_path / "report", one.encode()), public)
    wrong = [
        text.replace('"b": 1', '"b": NaN'),
        "[]",
        "",
        '{"report": [], "signature": ""}',
        "[" * 100_000,
    ]
    for one in wrong:
        with pytest.raises(UsageError, match="is not the report of a drill"):
            read_signed(write(tmp_path / "report", one.encode()), public)
    with pytest.raises(UsageError, match="is not the report of a drill"):
        read_signed(tmp_path / "absent", public)


def test_wrong_keys_are_named(key: Ed25519PrivateKey, tmp_path: Path) -> None:
    locked = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
    another = rsa.generate_private_key(65537, 2048).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    write(tmp_path / "locked", locked)
    write(tmp_path / "another", another)
    for option, name in (
        (SIGN_KEY, "locked"),
        (SIGN_KEY, "another"),
        (SIGN_KEY, "public.pem"),
        ("--key", "private.pem"),
        ("--key", "x"),
    ):
        with pytest.raises(UsageError, match=rf"{option} .*{name}.*openssl genpkey"):
            load_key(option, tmp_path / name)
