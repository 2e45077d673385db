.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup check test test-full test-long test-broken test-worlds docs demo bench bench-quick pins

BIN := .venv/bin
# Most tests wait, for brokers and for time: four at once keep two cores busy. Whole files, which share what they start.
# They are begun in the order of tests/conftest.py: the longest first.
SIDE_BY_SIDE := -n 4 --dist loadfile --no-loadscope-reorder
# A part of all tests, one for each command and promise; ARGS chooses among all of them.
QUICK = $(shell sed 's/ *\#.*//' tests/quick.txt)
# Each start of a command would compile its modules again, and each worker all tests: a minute of CPU before the first one runs.
unexport PYTHONDONTWRITEBYTECODE
SETUP_INPUTS := pyproject.toml constraints.txt $(wildcard infra/*.sh)

help: ## what can be made
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1#\2/p' Makefile | awk -F'#' '{printf "%-18s %s\n", $$1, $$2}'

setup: .venv/.set-up-test ## .venv with everything, the tests' MinIO, warm kernels

check: .venv/.set-up-test ## lint, format, types, architecture, links of the pages
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --site-dir .cache/site
	@if command -v shellcheck >/dev/null; then shellcheck infra/*.sh .ci/run; fi

# The verdict depends on the code alone: the same seeds in each run (tests/conftest.py), and sets in the same order.
test test-full: export PYTHONHASHSEED := 0
test: .venv/.set-up-test ## the tests of tests/quick.txt; needs Python and a JDK; ARGS="-k name" for those of all tests
	$(BIN)/pytest $(SIDE_BY_SIDE) $(or $(ARGS),$(QUICK))

test-full: .venv/.set-up-test ## every test, small counts; and that tests fail with copies that are broken on purpose
	$(BIN)/pytest $(SIDE_BY_SIDE) --broken $(ARGS)

test-long: export PYTHONHASHSEED ?= $(shell od -An -N2 -tu2 /dev/urandom | tr -d ' ')
test-long: .venv/.set-up-test ## the full counts too, with seeds that are drawn
	$(BIN)/pytest --long $(ARGS)

test-broken: .venv/.set-up-test ## copies of the program that are broken on purpose: tests must fail
	$(BIN)/pytest tests/broken --broken $(ARGS)

test-worlds: .venv/.set-up-test ## the full cycle on each broker and store of tests/worlds/table.py; fetches them; writes their table
	$(BIN)/pytest tests/worlds --worlds $(ARGS)
	$(BIN)/python -m tests.worlds.figures

docs: .venv/.set-up-test ## writes the generated pages again
	$(BIN)/python -m tests.support.metrics_tables
	$(BIN)/archiver config reference > docs/configuration.md
	$(BIN)/python -m tests.worlds.figures
	$(BIN)/python -m tests.support.target_states
	$(BIN)/python -m tests.support.rights_table
	$(BIN)/python -m tests.support.bad_input

demo: .venv/.set-up-demo ## backup, disaster, restore, proof, on a real broker; needs Python and Java
	$(BIN)/archiver demo $(ARGS)

bench: .venv/.set-up-test ## ours against the baseline; writes docs/benchmarks.md
	$(BIN)/python -m benchmarks.run $(ARGS)

bench-quick: .venv/.set-up-test ## the same with few records: its ratios beside the recorded ones, in two minutes
	$(BIN)/python -m benchmarks.run --quick $(ARGS)

pins: .venv/.set-up-test ## the hashes of all that set-up, tests and demo fetch, written again
	$(BIN)/python -m tests.support.pins

.venv/.set-up-test: $(SETUP_INPUTS)
	@infra/setup.sh test
	@touch .venv/.set-up-demo $@

.venv/.set-up-demo: $(SETUP_INPUTS)
	@infra/setup.sh demo
	@touch $@
