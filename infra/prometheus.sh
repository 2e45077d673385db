#!/bin/sh
# The Prometheus server of a long test, of the same module as promtool, without service discovery and without its pages.
export GOFLAGS=-tags=remove_all_sd
exec "$(dirname "$0")/go-program.sh" prometheus github.com/prometheus/prometheus cmd/prometheus v0.316.0 26 \
  h1:f1GRFerhTMKQma+awCoC9T820ecWeGSdF+xAlMHzZzM=
