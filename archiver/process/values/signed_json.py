"""Signs JSON by Ed25519, and checks such signatures. Whitespace and the order of keys do not count, only the canonical spelling.

Canonical: keys sorted, no spaces, UTF-8, and no numbers but whole ones. RFC 8785 spells such a value in the same way.
"""

import base64
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from archiver.errors import NotWholeError, UsageError
from archiver.process.values.json_values import as_object, parse_json

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

SIGN_KEY: Final = "--sign-key"
REPORT: Final = "report"
_SIGNATURE: Final = "signature"
_KINDS: Final = (
    "give an Ed25519 key in PEM without a password: openssl genpkey -algorithm ed25519; openssl pkey -pubout"
)
_MOST_PARSED_BYTES: Final = 256 << 20


def canonical(value: object) -> bytes:
    """Spell a value without floats in the one way that is signed."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def load_key(option: str, path: Path) -> Any:  # noqa: ANN401 - of an extra
    """Load an Ed25519 key: for `--sign-key` a private one, else a public one. Raises UsageError."""
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519  # noqa: PLC0415 - an extra
        from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key  # noqa: PLC0415

        content = path.read_bytes()
        found = load_pem_private_key(content, None) if option == SIGN_KEY else load_pem_public_key(content)
    except ModuleNotFoundError as error:
        raise UsageError(f"{option} needs {error.name}: pip install 'kafka-archiver[sign]'") from error
    except (OSError, ValueError, TypeError) as error:  # TypeError: the key has a password
        raise UsageError(f"{option} {path}: {error}; {_KINDS}") from error
    if not isinstance(found, ed25519.Ed25519PrivateKey | ed25519.Ed25519PublicKey):
        raise UsageError(f"{option} {path}: is another kind of key; {_KINDS}")
    return found


def sign(report: dict[str, Any], key: "Ed25519PrivateKey | None") -> dict[str, Any]:
    """Return a report with its signature; without a key the signature is null."""
    signature = None if key is None else base64.b64encode(key.sign(canonical(report))).decode()
    return {REPORT: report, _SIGNATURE: signature}


def _refuse_repeated(members: list[tuple[str, object]]) -> None:
    """Refuse an object with two members of one name: another program may show the one that is not signed."""
    if len(dict(members)) < len(members):
        raise ValueError("a name occurs twice in an object")


def read_signed(path: Path, key: "Ed25519PublicKey") -> dict[str, Any]:
    """Return a report whose signature is of this key. Raises NotWholeError, and UsageError for a file that is no report."""
    from cryptography.exceptions import InvalidSignature  # noqa: PLC0415 - an extra

    try:
        content = path.read_bytes()
        found = as_object(parse_json(content, _MOST_PARSED_BYTES))
        report, signature = as_object(found[REPORT]), found[_SIGNATURE]
    except (OSError, ValueError, KeyError) as error:
        raise UsageError(f"--check {path}: is not the report of a drill: {error!r:.200}") from error
    if signature is None:
        raise NotWholeError(f"{path}: is not signed; run the drill with --sign-key")
    try:
        json.loads(content, object_pairs_hook=_refuse_repeated)
        key.verify(base64.b64decode(str(signature), validate=True), canonical(report))
    except (InvalidSignature, ValueError) as error:
        raise NotWholeError(
            f"{path}: the signature does not match this report and key: do not trust the report"
        ) from error
    return report
