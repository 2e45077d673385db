#!/bin/sh
# Builds the tests' MinIO into .cache/bin. Without a Go that can build it, takes the one that PyPI has.
set -eu
cd "$(dirname "$0")/.."

version=v0.0.0-20260212201848-7aac2a2c5b7c  # the last one that is a Go module
oldest_go=24                                # 1.24, by its go.mod; Debian 12 has 1.19

stamp=.cache/bin/minio-$version
[ -x .cache/bin/minio ] && [ -e "$stamp" ] && exit 0

go=$(infra/go.sh "$oldest_go")
echo "building MinIO for the tests (some minutes)"
mkdir -p .cache/bin
GOBIN=$PWD/.cache/bin GOTOOLCHAIN=local "$go" install "github.com/minio/minio@$version"
touch "$stamp"
