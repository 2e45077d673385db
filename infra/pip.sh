#!/bin/sh
# Installs into .venv what is listed with its SHA-256, and nothing else. Nothing is fetched to build a package: see the group `build`.
set -eu
cd "$(dirname "$0")/.."
exec .venv/bin/python -m pip --disable-pip-version-check --quiet install --require-hashes --no-build-isolation "$@"
