#!/bin/sh
# helm, with which tests render the chart infra/helm/. They build it when they first need it: two minutes of CPU.
exec "$(dirname "$0")/go-program.sh" helm helm.sh/helm/v3 cmd/helm v3.22.0 26 \
  h1:n1if5iQgHYsujPAcO5oonH/KiSNUmqmUF0iGVjSF3AU=
