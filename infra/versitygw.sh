#!/bin/sh
# Builds versitygw, one of the stores of `make test-worlds`, into .cache/bin.
set -eu
cd "$(dirname "$0")/.."

version=v1.8.0
oldest_go=25  # 1.25, by its go.mod

stamp=.cache/bin/versitygw-$version
[ -x .cache/bin/versitygw ] && [ -e "$stamp" ] && exit 0

go=$(infra/go.sh "$oldest_go")
echo "building versitygw for the tests (a minute or two)"
mkdir -p .cache/bin
GOBIN=$PWD/.cache/bin GOTOOLCHAIN=local "$go" install "github.com/versity/versitygw/cmd/versitygw@$version"
touch "$stamp"
