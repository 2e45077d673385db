#!/bin/sh
# Makes .venv. Argument: demo (the program and what its demo needs) or test (also tools and the tests' MinIO).
set -eu
cd "$(dirname "$0")/.."

purpose=${1:?demo or test}
python=$(infra/prerequisites.sh "$purpose")

if ! .venv/bin/python -c '' 2>/dev/null; then
  "$python" -m venv --clear .venv
fi
pip() {
  .venv/bin/python -m pip --disable-pip-version-check --quiet "$@"
}
echo "installing Python packages into .venv"
pip install --upgrade --constraint constraints.txt pip  # dependency groups need 25.1
if [ "$purpose" = demo ]; then
  pip install --constraint constraints.txt --editable '.[demo]'
else
  pip install --constraint constraints.txt --editable '.[demo]' --group dev
  echo "fetching the tests' Kafka, Spark's Avro reader, and MinIO"
  .venv/bin/python -m tests.support.parts &
  infra/minio.sh
  wait
fi
echo "compiling kernels"
.venv/bin/python -m archiver.codec.warm
if [ "$purpose" = test ]; then
  echo "keeping the classes of Spark for quicker starts"
  .venv/bin/python -m archiver.spark.warm || echo "Spark starts as before"
fi
