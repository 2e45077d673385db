"""Searches for secrets that leak: into files, streams, objects, pages, and what other processes of this machine can see."""

import base64
import gzip
import http.client
import json
import os
import re
import urllib.parse
import urllib.request
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import boto3

from tests.support.brokers import Bucket
from tests.support.foreign_reader import keys_in, s3_client
from tests.support.processes import command_of, name_of, tree_of


def spellings(secret: str) -> Iterator[bytes]:
    """As it is, and as JSON, a URL, Python, hex and base64 have it, wherever within a longer text."""
    yield from (text.encode() for text in (secret, json.dumps(secret)[1:-1], repr(secret)[1:-1], secret.encode().hex()))
    yield from (quote(secret).encode() for quote in (urllib.parse.quote, urllib.parse.quote_plus))
    yield urllib.parse.quote(secret, safe="").encode()
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + secret.encode()).rstrip(b"=")
        whole = encoded[-(-before * 8 // 6) : len(encoded) - (before + len(secret.encode())) % 3]
        yield from (whole, whole.replace(b"+", b"-").replace(b"/", b"_"))


def session_of(bucket: Bucket) -> dict[str, str]:
    """Credentials for a while, as variables of the environment: a key of their own, and a session token."""
    sts = boto3.client(
        "sts",
        endpoint_url=bucket.s3.endpoint,
        aws_access_key_id=bucket.s3.access_key,
        aws_secret_access_key=bucket.s3.secret_key,
        region_name="us-east-1",
    )
    given = sts.assume_role(RoleArn="arn:any:of:any:role:any", RoleSessionName="test")["Credentials"]
    sts.close()
    names = {"AWS_ACCESS_KEY_ID": "AccessKeyId", "AWS_SECRET_ACCESS_KEY": "SecretAccessKey"}
    return {variable: given[name] for variable, name in {**names, "AWS_SESSION_TOKEN": "SessionToken"}.items()}


@dataclass(slots=True)
class Watch:
    """Looks for secrets, by the name of each. What it has found is in `found`, what it has looked at in `seen`."""

    secrets: Mapping[str, str]
    given: Mapping[str, str]  # variables of the environment that the user sets: their own place is no leak
    of_user: Collection[Path] = ()  # files that the user has written
    found: set[str] = field(default_factory=set)
    seen: set[str] = field(default_factory=set)
    _searched: set[tuple[Path, int, int, int]] = field(default_factory=set)  # states of files
    _forms: dict[str, "re.Pattern[bytes]"] = field(default_factory=dict)

    def search(self, where: str, content: bytes | str) -> None:
        self.seen.add(where)
        found = content.encode(errors="surrogateescape") if isinstance(content, str) else content
        self.found |= {f"{name} in {where}" for name in self.secrets if self._form(name).search(found)}

    def describe(self) -> str:
        return "\n".join(sorted(self.found))

    def _form(self, name: str) -> "re.Pattern[bytes]":
        if name not in self._forms:
            self._forms[name] = re.compile(b"|".join(map(re.escape, sorted(set(spellings(self.secrets[name]))))))
        return self._forms[name]

    def search_folder(self, folder: Path) -> None:
        """Now: what is temporary is gone in the end."""
        for place, _, names in os.walk(folder):  # which overlooks that a folder is gone meanwhile
            for path in (Path(place, name) for name in names):
                with suppress(OSError):
                    if not path.is_file() or path in self.of_user:
                        continue
                    state = path.stat()
                    which = (path, state.st_ino, state.st_size, state.st_mtime_ns)
                    if which not in self._searched:
                        self._searched.add(which)
                        self.search(f"file {path.relative_to(folder)}", path.read_bytes())

    def search_processes(self, pid: int, *, java_has_ours: bool) -> None:
        """Arguments everybody can see, the environment the same user. Java evaluates SQL: the one that we start is given none."""
        for one in tree_of(pid):
            name = name_of(one)
            self.search(f"arguments of {name}", command_of(one))
            with suppress(OSError):
                pairs = Path(f"/proc/{one}/environ").read_bytes().split(b"\0")
                is_trusted = name != "java" or java_has_ours
                own = {f"{key}={text}".encode() for key, text in self.given.items()} if is_trusted else set()
                self.search(f"environment of {name}", b"\0".join(pair for pair in pairs if pair not in own))

    def search_page(self, url: str) -> bytes:
        """Empty when nobody answers (yet), or to the end (any more)."""
        with suppress(OSError, http.client.HTTPException), urllib.request.urlopen(url, timeout=5) as answer:
            page: bytes = answer.read()
            self.search(f"page {re.sub(r'.*:[0-9]+', '', url)}", page)
            return page
        return b""

    def search_spark(self, port: int) -> None:
        """What Spark's UI tells of the application that runs."""
        there = f"http://127.0.0.1:{port}"
        with suppress(ValueError):
            for application in json.loads(self.search_page(f"{there}/api/v1/applications") or b"[]"):
                of_it = f"{there}/api/v1/applications/{application['id']}"
                for page in ("environment", "jobs", "stages", "executors", "storage/rdd"):
                    self.search_page(f"{of_it}/{page}")
                self.search_page(f"{there}/environment/")

    def search_bucket(self, bucket: Bucket) -> int:
        """Keys, metadata and bodies. Returns how many objects there are."""
        client, keys = s3_client(bucket), keys_in(bucket)
        for key in keys:
            answer = client.get_object(Bucket=bucket.name, Key=key)
            body = answer["Body"].read()
            plain = gzip.decompress(body) if key.endswith(".gz") else body
            self.search(f"object {key}", json.dumps([key, answer["Metadata"]]).encode() + plain)
        return len(keys)
