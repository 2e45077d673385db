#!/bin/sh
# versitygw, one of the stores of `make test-worlds`.
exec "$(dirname "$0")/go-program.sh" versitygw github.com/versity/versitygw cmd/versitygw v1.8.0 25 \
  h1:au+wI+aybno/STsQiSm35Uu6Q6iK5MWReQxgO6SEMFc=
