#!/bin/sh
# promtool, with which the tests parse and try the rules of infra/monitoring: without service discovery, which takes most of the build.
export GOFLAGS=-tags=remove_all_sd
exec "$(dirname "$0")/go-program.sh" promtool github.com/prometheus/prometheus cmd/promtool v0.316.0 26 \
  h1:f1GRFerhTMKQma+awCoC9T820ecWeGSdF+xAlMHzZzM=
