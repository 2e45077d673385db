#!/bin/sh
# The tests' MinIO: the last version that is a Go module. Debian 12 has Go 1.19, too old for it.
exec "$(dirname "$0")/go-program.sh" minio github.com/minio/minio . v0.0.0-20260212201848-7aac2a2c5b7c 24 \
  h1:/qdoYujxF5MBLDMVLeiYJ/7fBa1HikX39Dvzb9Ji8pA=
