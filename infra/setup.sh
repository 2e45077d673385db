#!/bin/sh
# Makes .venv. Argument: demo (the program and what its demo needs) or test (also tools and the tests' MinIO).
set -eu
cd "$(dirname "$0")/.."

purpose=${1:?demo or test}
python=$(infra/prerequisites.sh "$purpose")

if ! .venv/bin/python -c '' 2>/dev/null; then
  "$python" -m venv --clear .venv
fi
echo "installing Python packages into .venv (over 1 GB: a few minutes without output)"
# Older ones take no hashes from constraints.
sed -n '/^pip==/,/[^\\]$/p' constraints.txt | infra/pip.sh --requirement /dev/stdin
infra/pip.sh --constraint constraints.txt --group build
# A folder has no hash: it is installed alone, and what it depends on then follows.
.venv/bin/python -m pip --disable-pip-version-check --quiet install --no-index --no-deps --no-build-isolation --check-build-dependencies --editable .
if [ "$purpose" = demo ]; then
  infra/pip.sh --constraint constraints.txt 'kafka-archiver[demo]'
  .venv/bin/python -m archiver.codec.warm
else
  infra/pip.sh --constraint constraints.txt 'kafka-archiver[demo]' --group dev
  .venv/bin/python -m archiver.codec.warm &
  warm=$!
  echo "fetching the tests' Kafka, Spark's Avro reader, and MinIO"
  .venv/bin/python -m tests.support.parts &
  parts=$!
  infra/minio.sh
  wait "$parts"
  wait "$warm"
fi
if [ "$purpose" = test ]; then
  echo "keeping the classes of Spark for quicker starts"
  .venv/bin/python -m archiver.spark.warm || echo "Spark starts as before"
fi
