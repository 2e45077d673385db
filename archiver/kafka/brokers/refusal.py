"""Explains failed logins to brokers: an error with the cause, the address and the next step."""

import ssl
from collections.abc import Iterator, Mapping

from aiokafka.errors import IllegalSaslStateError, SaslAuthenticationFailed, UnsupportedSaslMechanismError

from archiver.errors import KafkaTemporaryError, NotLetInError
from archiver.kafka.brokers.cluster import Refusal
from archiver.kafka.login.security import Security, SecurityProtocol
from archiver.kafka.login.settings import KafkaSettings

# OpenSSL's messages for an answer that is not TLS.
_NO_TLS = frozenset({"WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL", "RECORD_LAYER_FAILURE", "HTTP_REQUEST"})


def explain(settings: KafkaSettings, reasons: Mapping[str, BaseException]) -> Refusal:
    """Return why no bootstrap address works. The error is final when a retry can heal none of the reasons."""
    found = [explain_one(address, error, settings.security) for address, error in reasons.items()]
    final = [error for error in found if not error.retriable]
    if final and len(final) == len(found):
        return final[0]
    without_token = [error.__cause__ for error in reasons.values() if isinstance(error.__cause__, KafkaTemporaryError)]
    if without_token:  # without a token no broker was asked
        return without_token[0]
    why = f" ({'; '.join(map(str, found))})" if found else ""
    return KafkaTemporaryError(
        f"no Kafka broker answers at kafka: bootstrap.servers {settings.bootstrap_servers}{why}; check the address, that the"
        f" brokers run, and that this is a listener for {settings.security.describe()}"
    )


def explain_one(address: str, error: BaseException, security: Security) -> Refusal:
    """Return why one broker cannot be used."""
    causes = list(_chain(error))
    final = next(filter(None, (_why_never(cause, security) for cause in causes)), "")
    if final:
        return NotLetInError(f"{address} {final}")
    ended = [cause for cause in causes if isinstance(cause, EOFError | ConnectionError)]
    if ended and not any(isinstance(cause, ConnectionRefusedError) for cause in ended):
        wants = "does not speak TLS" if security.protocol.has_tls else "wants TLS (security.protocol)"
        return KafkaTemporaryError(f"{address} closed the connection at once: perhaps it {wants}")
    return KafkaTemporaryError(f"{address}: {_text(error)}")


def _why_never(cause: BaseException, security: Security) -> str:
    """Return why a retry cannot help; empty: it may."""
    match cause:
        case IllegalSaslStateError():
            other = SecurityProtocol.SSL if security.protocol.has_tls else SecurityProtocol.PLAINTEXT
            why = (
                f"does not ask who we are ({security.describe()}); check the port, or set security.protocol to {other}"
                " and leave sasl.* out"
            )
        case SaslAuthenticationFailed():
            look_at = "what gives the token" if security.mechanism == "OAUTHBEARER" else "user and password"
            why = f"does not let us in ({security.describe()}): {_text(cause)}; check {look_at}"
        case UnsupportedSaslMechanismError():
            why = f"does not take sasl.mechanism {security.mechanism}; check the port, or what the listener has enabled"
        case ssl.SSLCertVerificationError():
            why = (
                f"shows a certificate that is not accepted: {cause.verify_message}; check ssl.ca.location, and the"
                " certificate's names and dates"
            )
        case ssl.SSLError() if cause.reason in _NO_TLS:
            other = SecurityProtocol.SASL_PLAINTEXT if security.protocol.has_sasl else SecurityProtocol.PLAINTEXT
            why = f"does not speak TLS; check the port, or set security.protocol to {other}"
        case ssl.SSLError():
            why = (
                f"ends the TLS handshake: {cause.reason or cause}; does it ask for a certificate (ssl.certificate.location,"
                " ssl.key.location), and does it trust the CA that signed ours?"
            )
        case _:
            why = ""
    return why


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Return an error and the errors that caused it."""
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__ or seen.__context__


def _text(error: BaseException) -> str:
    text = getattr(error, "strerror", None) or str(error)
    return text or type(error).__name__
