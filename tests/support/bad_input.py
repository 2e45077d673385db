"""Every kind of bad input, with the exit code and the words that a user gets: the table of docs/messages.md, and what tests check."""

from typing import Final, NamedTuple

from tests.support.brokers import REPOSITORY
from tests.support.pages import with_table

PAGE: Final = REPOSITORY / "docs" / "messages.md"
MARK: Final = "messages"


class Answer(NamedTuple):
    """How the program answers a bad input."""

    exit_code: int
    says: str  # a part of the printed line, which also says where the input is wrong


CONFIGURATION: Final[dict[str, Answer]] = {
    "no configuration file": Answer(2, "no configuration: give -c FILE"),
    "a configuration file that cannot be read": Answer(2, "cannot be read"),
    "a file that is not YAML": Answer(2, "not YAML"),
    "a password that YAML takes for an alias": Answer(2, "not YAML: found undefined alias; a text with any of"),
    "a password that YAML takes for a tag": Answer(2, "a tag (!) is not taken; a text with any of"),
    "a password that YAML takes for keys": Answer(2, "kafka.sasl.password takes a value, not keys"),
    "a key that is a list": Answer(2, "a key is a text, not a list or a mapping"),
    "an alias of what it stands in": Answer(2, "is nested too deep, or an alias (*) stands within what it stands for"),
    "merge keys": Answer(2, "merge keys (<<) are not taken; write the keys out"),
    "a list instead of keys": Answer(2, "a configuration is a mapping of keys to values"),
    "an unknown key": Answer(2, "unknown key below storage; did you mean storage.url?"),
    "a password that YAML takes for keys, under an unknown one": Answer(2, "unknown key below kafka.sasl; did you mean kafka.sasl.password?"),
    "a file without end": Answer(2, "/dev/zero: is larger than 4,194,304 characters"),
    "a key that is given twice": Answer(2, "is given a second time"),
    "a required key that is missing": Answer(2, "storage.url: is required"),
    "a size that is none": Answer(2, "backup.segment.bytes: is not like 64MiB"),
    "a duration without a unit": Answer(2, "is not like 5min"),
    "a number that is too small": Answer(2, "backup.memory: Input should be greater than or equal to 16777216"),
    "a level that the codec does not have": Answer(2, "codec.level is not in 1..22, the levels of zstandard"),
    "a regular expression that is none": Answer(2, "is not a regular expression"),
    "a text where a list goes": Answer(2, "topics.include: must be a list, such as [orders, payments]"),
    "a port that is none": Answer(2, "metrics.listen: is not like 127.0.0.1:9404, with a port up to 65535"),
    "a start that is a date without its dashes": Answer(2, "backup.start: is before 1973 as milliseconds since 1970"),
    "a store's CA file that is a folder": Answer(2, "storage.ca-file: is no file"),
    "a URL that is not S3": Answer(2, "is not like s3://bucket/prefix"),
    "a name that no bucket can have": Answer(2, "cannot be a bucket: 3 to 63"),
    "an endpoint that is no address": Answer(2, "is not like https://host:port"),
    "a storage class that cannot be read at once": Answer(2, "cannot be read without a restore request"),
    "an environment variable that is not set": Answer(2, "the environment has no NOBODY_SET_THIS"),
    "a variable that is spelled wrong": Answer(2, "kafka.sasl.password: a ${ that is neither ${NAME} nor ${file:PATH}"),
    "a secret's file that is not there": Answer(2, "/nowhere/secret cannot be read: No such file or directory"),
    "a backup without topics": Answer(2, "topics.include: is missing"),
    "a backup without brokers": Answer(2, "kafka.bootstrap.servers is missing"),
    "a broker's address that is none": Answer(2, "kafka.bootstrap.servers: is not host:port"),
    "an unknown Kafka key": Answer(2, "a key below kafka.client is not one that both Kafka clients can honour; did you mean client.id?"),
    "a password without security.protocol": Answer(2, "kafka.sasl.password: goes with security.protocol sasl_ssl or sasl_plaintext"),
    "an unknown security.protocol": Answer(2, "kafka.security.protocol: is not one of plaintext, ssl"),
    "an unknown sasl.mechanism": Answer(2, "kafka.sasl.mechanism: is not one of PLAIN, SCRAM-SHA-256"),
    "two mechanisms that differ": Answer(2, "kafka.sasl.mechanism and sasl.mechanisms mean the same and differ; keep one"),
    "a key's text in place of its file": Answer(2, "kafka.ssl.key.location: is the text of a PEM file, not its path"),
    "SCRAM without a password": Answer(2, "kafka.sasl.password: is missing; sasl.mechanism SCRAM-SHA-512 needs it"),
    "a CA file that is not there": Answer(2, "kafka.ssl.ca.location: there is no such file"),
    "a CA file that is none": Answer(2, "kafka.ssl.ca.location: "),
    "a certificate without its key": Answer(2, "kafka.ssl.certificate.location: goes with ssl.key.location or ssl.key.pem"),
    "a key that is another certificate's": Answer(2, "KEY_VALUES_MISMATCH"),
    "a token_provider that is not there": Answer(2, "kafka.token_provider: there is no such module"),
    "a token_provider that cannot be imported": Answer(2, "kafka.token_provider: no badge"),
    "a choice that is none": Answer(2, "kafka.enable.ssl.certificate.verification: is not one of true, false"),
    "a password in an endpoint": Answer(2, "is not like https://host:port"),
    "a signed address in place of a URL of S3": Answer(2, "storage.url: is not like s3://bucket/prefix"),
    "a token in place of its provider": Answer(2, "kafka.token_provider: is not like module:function"),
    "a token endpoint elsewhere without TLS": Answer(2, "kafka.sasl.oauthbearer.token.endpoint.url: must be https"),
    "a password in a URL of S3": Answer(2, "storage.url: what stands behind s3:// cannot be a bucket"),
    "a password in a broker's address": Answer(2, "kafka.bootstrap.servers: is not host:port"),
    "OAUTHBEARER without a source of tokens": Answer(2, "kafka.sasl.oauthbearer.client.id: is missing"),
    "GSSAPI without the libraries": Answer(2, "kafka.sasl.mechanism: GSSAPI"),
    "a spool folder that cannot be written": Answer(2, "name a directory that can be written"),
}  # fmt: skip

COMMAND_LINE: Final[dict[str, Answer]] = {
    "a topic that is not archived": Answer(2, "is not in the archive; `archiver ls` shows what is"),
    "a partition that is not archived": Answer(2, "has no partition 9 in the archive; it has 0, 1"),
    "a life that is not archived": Answer(2, "has no life 7 in the archive; it has 0"),
    "a range that ends before it begins": Answer(2, "the range ends before it begins"),
    "a time without a zone": Answer(2, "has no zone; write 2026-11-20T14:00:00Z or +02:00"),
    "a time in seconds": Answer(2, "--from: '1763647200' is before 1973 as milliseconds since 1970"),
    "--topics that match nothing": Answer(2, "no archived topic matches nothing"),
    "--topics that are no regular expression": Answer(2, "--topics (: not a regular expression"),
    "--rename of a topic that is not restored": Answer(2, "--rename of another: not among the topics that are restored"),
    "--rename to a name that no topic can have": Answer(2, "cannot be a topic's name"),
    "a --where without a predicate": Answer(2, "--where: is empty; give a predicate"),
    "a --replication-factor of none": Answer(2, "--replication-factor 0: must be 1 to 32,767"),
    "an --id that cannot stand in a key": Answer(2, "--id a/b: must be 1 to 64 of"),
    "an object that is not there": Answer(2, "there is no such object"),
    "an object without a name": Answer(2, "s3://bucket/p/: names no object"),
    "a number that no offset can be": Answer(2, "argument --limit: '9223372036854775808' is not a whole number, 0 to"),
    "a life where a topic's name goes": Answer(2, "'orders@1' is not the name of a topic; it is life 1 of orders"),
    "a configuration and a URL": Answer(2, "argument --url: not allowed with argument -c/--config"),
}  # fmt: skip

KAFKA: Final[dict[str, Answer]] = {
    "a broker that does not answer": Answer(4, "no Kafka broker answers at kafka: bootstrap.servers 127.0.0.1:9"),
    "a broker's name that does not resolve": Answer(4, "no Kafka broker answers at kafka: bootstrap.servers nowhere.invalid:9092"),
    "a wrong password": Answer(1, "does not let us in (sasl_ssl SCRAM-SHA-256 as user alice)"),
    "a token that has expired": Answer(1, "there is no token: tests.support.token_server:give_late gave one that had expired"),
    "a token_provider that gives no token": Answer(1, "there is no token: tests.support.token_server:give_bytes returned no token"),
    "a token_provider that hangs": Answer(4, "there is no token: tests.support.token_server:hang has not given one for"),
    "a token_provider that ends the program": Answer(1, "there is no token: SystemExit 7"),
    "a token_provider that is away": Answer(4, "there is no token: http://127.0.0.1:9/token: "),
    "a password to a listener that asks for none": Answer(1, "does not ask who we are (sasl_plaintext PLAIN as user alice)"),
    "an expired certificate": Answer(1, "shows a certificate that is not accepted: certificate has expired"),
    "a certificate of a stranger": Answer(1, "shows a certificate that is not accepted: "),
    "a certificate for another name": Answer(1, "shows a certificate that is not accepted: IP address mismatch"),
    "a client certificate that is missing": Answer(1, "ends the TLS handshake"),
    "plaintext to a TLS port": Answer(4, "closed the connection at once: perhaps it wants TLS (security.protocol)"),
    "TLS to a plaintext port": Answer(4, "closed the connection at once: perhaps it does not speak TLS"),
}  # fmt: skip

STORE: Final[dict[str, Answer]] = {
    "a store that does not answer": Answer(4, "no server listens at http://127.0.0.1:9; check storage.endpoint"),
    "a bucket that does not exist": Answer(1, "bucket no-such-bucket does not exist; create it, or correct storage.url"),
    "a wrong secret key": Answer(1, "the credentials were refused; correct them"),
    "a session token with a line break": Answer(1, "a header of the request cannot be spelled; is there a line break"),
    "no credentials": Answer(1, "no credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"),
    "no right to list": Answer(1, "ListObjectsV2 was denied; grant s3:ListBucket on bucket"),
    "no right to read": Answer(1, "was denied; grant s3:GetObject"),
    "no right to write": Answer(1, "PutObject was denied; grant s3:PutObject on it"),
    "a clock that is wrong": Answer(4, "the clocks of this machine and of the store differ by more than 15 minutes"),
    "a store that overwrites": Answer(1, "the store does not honour If-None-Match: * on put (it overwrote an object)"),
    "a store that knows no conditions": Answer(1, "the store does not honour If-None-Match: * on put (s3://"),
    "a topic whose objects' names the store does not take": Answer(1, "the store takes no object of this name"),
    "a store that drops empty metadata": Answer(1, "the store does not give back metadata as it was put (archiver-topic-id)"),
}  # fmt: skip

ARCHIVE: Final[dict[str, Answer]] = {
    "an object that is gone": Answer(3, "offsets 10-19 are missing from the archive"),
    "an object that was cut": Answer(3, "its bytes are not those that were written"),
    "an object with a flipped bit": Answer(3, "its bytes are not those that were written"),
    "an empty object": Answer(3, "not an Avro object container file"),
    "wrong counts in the facts": Answer(3, "records up to offset 15, not 3 up to 15"),
    "facts that are damaged": Answer(3, "facts that cannot be"),
    "an object without facts": Answer(3, "has no archiver-* metadata"),
    "an object from the future": Answer(3, "format 3 is newer than this program reads"),
    "a topic's control fact that is damaged": Answer(3, "invalid note of a topic: topic is missing"),
    "a foreign object under the prefix": Answer(0, "stranger: p/topics/README"),
    "the prefix of another cluster": Answer(3, "this archive belongs to cluster another"),
}  # fmt: skip

MACHINE: Final[dict[str, Answer]] = {
    "a batch that expands to gigabytes": Answer(3, "offset 1: ZSTD payload: not readable within 268435456 bytes: it expands to more"),
    "a spool disk that is full": Answer(4, "make room, or name another directory in backup.spool.dir"),
    "no writable place for compiled kernels": Answer(0, "no writable place for compiled kernels"),
    "compiled kernels that somebody else could have changed": Answer(0, "are not used: "),
    "an output that cannot be written": Answer(1, "the output could not be written: No space left on device"),
}  # fmt: skip

ALL: Final = CONFIGURATION | COMMAND_LINE | KAFKA | STORE | ARCHIVE | MACHINE


def table() -> str:
    """For docs/messages.md: what is wrong and what the program says, by exit code."""
    lines = []
    for code in sorted({answer.exit_code for answer in ALL.values()}):
        lines += ["", f"## Exit code {code}", ""]
        lines += [f"- {kind}: {_code(answer.says)}" for kind, answer in ALL.items() if answer.exit_code == code]
    return "\n".join([*lines[1:], ""])


def _code(text: str) -> str:
    """Return a text between backquotes, also one that has some."""
    return f"`` {text.strip()} ``" if "`" in text else f"`{text.strip()}`"


def main() -> None:
    """Write the table again."""
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), MARK, table()), encoding="utf-8")


if __name__ == "__main__":
    main()
