"""Which MinIO the tests take."""

import os
from pathlib import Path

import pytest

from tests.support import minio


def put_program(path: Path) -> Path:
    path.parent.mkdir(parents=True)
    path.touch(mode=0o755)
    return path


def test_only_the_built_or_named_minio_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others have an unknown version."""
    monkeypatch.setattr(minio, "_REPOSITORY", tmp_path / "repository")
    monkeypatch.delenv("ARCHIVER_MINIO", raising=False)
    in_path = put_program(tmp_path / "path" / "minio")
    put_program(tmp_path / "go" / "bin" / "minio")
    monkeypatch.setenv("PATH", f"{in_path.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("GOPATH", str(tmp_path / "go"))
    assert minio.find_minio() is None
    built = put_program(tmp_path / "repository" / ".cache" / "bin" / "minio")
    assert minio.find_minio() == built
    monkeypatch.setenv("ARCHIVER_MINIO", str(in_path))
    assert minio.find_minio() == in_path
