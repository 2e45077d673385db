"""Every kind of bad input, with the exit code and the words that a user gets: the table of docs/operations.md, and what tests check."""

from typing import Final, NamedTuple


class Answer(NamedTuple):
    """What the program does with it."""

    exit_code: int
    says: str  # a part of the line; the whole also says where


CONFIGURATION: Final[dict[str, Answer]] = {
    "no configuration file": Answer(2, "no configuration: give -c FILE"),
    "a configuration file that cannot be read": Answer(2, "cannot be read"),
    "a file that is not YAML": Answer(2, "not YAML"),
    "a list instead of keys": Answer(2, "a configuration is a mapping of keys to values"),
    "an unknown key": Answer(2, "unknown key storage.ulr; did you mean storage.url?"),
    "a key that is given twice": Answer(2, "is given a second time"),
    "a required key that is missing": Answer(2, "storage.url: is required"),
    "a size that is none": Answer(2, "'lots' is not like 64MiB"),
    "a duration without a unit": Answer(2, "'5' is not like 5min"),
    "a number that is too small": Answer(2, "backup.memory: Input should be greater than or equal to 16777216"),
    "a level that the codec does not have": Answer(2, "codec.level 30 of zstandard is not in 1..22"),
    "a regular expression that is none": Answer(2, "is not a regular expression"),
    "a URL that is not S3": Answer(2, "is not like s3://bucket/prefix"),
    "a name that no bucket can have": Answer(2, "cannot be a bucket: 3 to 63"),
    "an endpoint that is no address": Answer(2, "is not like https://host:port"),
    "a storage class that cannot be read at once": Answer(2, "cannot be read without a restore request"),
    "an environment variable that is not set": Answer(2, "the environment has no NOBODY_SET_THIS"),
    "a secret's file that is not there": Answer(2, "/nowhere/secret cannot be read: No such file or directory"),
    "a backup without topics": Answer(2, "topics.include: is missing"),
    "a backup without brokers": Answer(2, "kafka.bootstrap.servers is missing"),
    "a broker's address that is none": Answer(2, "'http://broker' is not host:port"),
    "an unknown Kafka key": Answer(2, "kafka.client.ids is not a key that both Kafka clients can honour; did you mean client.id?"),
    "a password without security.protocol": Answer(2, "kafka.sasl.password: goes with security.protocol sasl_ssl or sasl_plaintext"),
    "an unknown security.protocol": Answer(2, "kafka.security.protocol: 'tls' is not one of plaintext, ssl"),
    "an unknown sasl.mechanism": Answer(2, "kafka.sasl.mechanism: 'MD5' is not one of PLAIN, SCRAM-SHA-256"),
    "SCRAM without a password": Answer(2, "kafka.sasl.password: is missing; sasl.mechanism SCRAM-SHA-512 needs it"),
    "a CA file that is not there": Answer(2, "kafka.ssl.ca.location: /nowhere/ca.pem: there is no such file"),
    "a CA file that is none": Answer(2, "kafka.ssl.ca.location: "),
    "a certificate without its key": Answer(2, "kafka.ssl.certificate.location: goes with ssl.key.location or ssl.key.pem"),
    "a key that is another certificate's": Answer(2, "KEY_VALUES_MISMATCH"),
    "a token_provider that is not there": Answer(2, "kafka.token_provider: no_such_module:token: No module named"),
    "a token_provider that cannot be imported": Answer(2, "kafka.token_provider: tests.support.broken_tokens:token: no badge"),
    "a choice that is none": Answer(2, "kafka.enable.ssl.certificate.verification: 'no' is not one of true, false"),
    "a password in an endpoint": Answer(2, "is not like https://host:port"),
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
    "--topics that match nothing": Answer(2, "no archived topic matches nothing"),
    "--topics that are no regular expression": Answer(2, "--topics (: not a regular expression"),
    "--rename of a topic that is not restored": Answer(2, "--rename of another: not among the topics that are restored"),
    "--rename to a name that no topic can have": Answer(2, "cannot be a topic's name"),
    "an --id that cannot stand in a key": Answer(2, "--id a/b: must be 1 to 64 of"),
    "an object that is not there": Answer(2, "there is no such object"),
}  # fmt: skip

KAFKA: Final[dict[str, Answer]] = {
    "a broker that does not answer": Answer(4, "no Kafka broker answers at kafka: bootstrap.servers 127.0.0.1:9"),
    "a broker's name that does not resolve": Answer(4, "no Kafka broker answers at kafka: bootstrap.servers nowhere.invalid:9092"),
    "a wrong password": Answer(1, "does not let us in (sasl_ssl SCRAM-SHA-256 as user alice)"),
    "an expired certificate": Answer(1, "shows a certificate that is not accepted: certificate has expired"),
    "a certificate of a stranger": Answer(1, "shows a certificate that is not accepted: "),
    "a certificate for another name": Answer(1, "shows a certificate that is not accepted: IP address mismatch"),
    "a client certificate that is missing": Answer(1, "ends the TLS handshake"),
    "plaintext to a TLS port": Answer(4, "closed the connection at once: perhaps it wants TLS (security.protocol)"),
    "TLS to a plaintext port": Answer(4, "closed the connection at once: perhaps it does not speak TLS"),
}  # fmt: skip

STORE: Final[dict[str, Answer]] = {
    "a store that does not answer": Answer(4, "nobody listens at http://127.0.0.1:9; check storage.endpoint"),
    "a bucket that does not exist": Answer(1, "bucket no-such-bucket does not exist; create it, or correct storage.url"),
    "a wrong secret key": Answer(1, "the credentials were refused; correct them"),
    "no credentials": Answer(1, "no credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"),
    "no right to list": Answer(1, "ListObjectsV2 was denied; grant s3:ListBucket on it"),
    "no right to read": Answer(1, "was denied; grant s3:GetObject"),
    "no right to write": Answer(1, "PutObject was denied; grant s3:PutObject on it"),
    "a clock that is wrong": Answer(4, "the clocks of this machine and of the store differ by more than 15 minutes"),
    "a store that overwrites": Answer(1, "the store does not honour If-None-Match: * on put"),
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
    "a topic's control fact that is damaged": Answer(3, "a topic's control fact"),
    "a foreign object under the prefix": Answer(0, "stranger: p/topics/README"),
    "the prefix of another cluster": Answer(3, "this archive belongs to cluster another"),
}  # fmt: skip

MACHINE: Final[dict[str, Answer]] = {
    "a spool disk that is full": Answer(4, "make room, or name another directory in backup.spool.dir"),
    "no writable place for compiled kernels": Answer(0, "no writable place for compiled kernels"),
    "an output that cannot be written": Answer(1, "the output could not be written: No space left on device"),
}

ALL: Final = CONFIGURATION | COMMAND_LINE | KAFKA | STORE | ARCHIVE | MACHINE


def table() -> str:
    """The table of docs/operations.md."""
    rows = [
        f"| {kind} | {answer.exit_code} | {answer.says.strip().replace('|', chr(92) + '|')} |"
        for kind, answer in ALL.items()
    ]
    return "\n".join(["| what is wrong | exit code | it says |", "| --- | --- | --- |", *rows])
