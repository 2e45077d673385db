"""What fixtures give to tests: a broker, an S3 endpoint, a bucket; started for the session, or named by option."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tests.support.kafka_broker import KafkaBroker

REPOSITORY = Path(__file__).resolve().parents[2]
CACHE = REPOSITORY / ".cache"  # git-ignored; `make setup` warms it
KAFKA_33 = "3.3.2"
KAFKA_37 = "3.7.2"
KAFKA_39 = "3.9.1"
KAFKA_41 = "4.1.1"
KAFKA_44 = "4.4.0"


class Broker(Protocol):
    """A broker that tests share. A test that stops its broker takes `new_broker`."""

    @property
    def bootstrap(self) -> str: ...


class S3(Protocol):
    @property
    def endpoint(self) -> str: ...
    @property
    def access_key(self) -> str: ...
    @property
    def secret_key(self) -> str: ...


class StartBroker(Protocol):
    """Starts a broker that one test has to itself; it is stopped after the test."""

    def __call__(self, version: str = KAFKA_41, **properties: str) -> KafkaBroker: ...


@dataclass(frozen=True, slots=True)
class GivenBroker:
    bootstrap: str


@dataclass(frozen=True, slots=True)
class GivenS3:
    endpoint: str
    access_key: str
    secret_key: str


@dataclass(frozen=True, slots=True)
class Bucket:
    """A fresh, empty bucket."""

    s3: S3
    name: str

    @property
    def url(self) -> str:
        return f"s3://{self.name}"
