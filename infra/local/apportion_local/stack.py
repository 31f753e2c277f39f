"""One stack: three servers, perhaps the services, and the file that tells others how to reach them."""

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

from . import bus, limits, nats_conf, net, paths, services, tls, users, wheels
from .breakable import Clocks, Disk
from .bus_store import BusStore
from .clickhouse import DATABASE as CLICKHOUSE_DATABASE
from .clickhouse import ClickHouse
from .kept import Kept
from .net import LOOPBACK, http_ok
from .paths import StackError
from .postgres import DATABASE as POSTGRES_DATABASE
from .postgres import READER, SCHEMAS, SUPERUSER, TEST_ROLE, Postgres
from .supervisor import Spec, StartError, Supervisor

# Who speaks TLS for a server that cannot.
DOORS = ("postgres-tls", "clickhouse-tls")
PROGRAMS = ("apportion", "loadtest", *(f"apportion-{name}" for name in services.NAMES))
SERVERS = ("clickhouse", "postgres", "nats")
# A port that was free when it was chosen may be gone when the server binds it.
PORT_ATTEMPTS = 3
CELL_INIT_TIMEOUT_S = 60
# Real time for the services and the nodes to come up before the recorded time begins.
LEAD_MS = 20_000
FLEET = "fleet"
# The agent of this machine, and the node that it speaks for.
AGENT, AGENT_NODE = "node-agent", "this-machine"
# How much Postgres and ClickHouse give way where they share a machine with the services. Between processes it has an effect only
# where the kernel does not group tasks by session (kernel.sched_autogroup_enabled=0): docs/benchmarks.md, Questions.
READ_MODELS_NICE = 5
# The quota of each tenant of `up`, and the rates in millionths per unit and hour.
UP_QUOTA = {"cpu": "256", "memory": "2TiB", "gpu": "32"}
UP_RATES = {"cpu": 40_000, "memory": 5_000, "gpu": 2_000_000}


def beginning(cell, tenants, operation_window_ms=services.OPERATION_WINDOW_MS, furnished=False, breakable=False,
              tls_only=False, lease_ms=services.LEASE_MS):
    """
    What a stack's data belongs to from its first to its last launcher. `furnished`: with nodes, quotas and rates;
    `breakable`: with clocks that can be set wrong, and the servers' data in memory.
    """
    return {"cell": cell, "tenants": list(tenants), "operation_window_ms": operation_window_ms, "clock": None,
            "furnished": furnished, "breakable": breakable, "tls": tls_only, "lease_ms": lease_ms}


class Stack:
    def __init__(self, state, programs, sized, begin=None, for_tests=False, tls_only=None):
        """
        `programs`: the directory of the programs. `sized`: the machine and the sizes of the servers. `begin`: the result of
        `beginning`; None: the stack continues with its data, and with TLS as `tls_only` states from now on, or as before.
        """
        self.programs = programs
        self.sizes = sized.sizes
        sized.write(state.path)
        self.state = state
        self.kept = Kept(state)
        if begin is not None:
            self.kept.begin(begin)
        begun = self.kept.stack()
        if tls_only is not None and tls_only != begun.get("tls", False):
            self.kept.tls(tls_only)
        # Stacks of earlier versions do not say.
        self.tls_dir = state.path / "tls" if begun.get("tls") else None
        self.for_tests = for_tests
        self.file = state.path / "stack.json"
        self.supervisor = Supervisor(state, on_change=self._write, diagnose=self.limits_reached)
        self.service_names = ()
        self.clocks = None
        # By server.
        self.disks = {}
        # Decisions come before read models and the bill, which catch up.
        self.nice = 0 if for_tests else READ_MODELS_NICE
        self.bus_dir = state.path / "bus"
        self.value = {
            "cell": {"name": begun["cell"], "number": services.CELL_NUMBER},
            "tenants": begun["tenants"],
            "clock": begun["clock"],
            "operation_window_ms": begun["operation_window_ms"],
            # Stacks of earlier versions do not say.
            "lease_ms": begun.get("lease_ms", services.LEASE_MS),
            "state_dir": str(state.path),
            "services": {},
        }
        # Stacks of earlier versions do not say.
        if begun.get("breakable"):
            if begin is None:
                raise StackError(f"{state.path} had its servers' data in memory, which is gone. Begin anew: --fresh")
            self._make_breakable()

    def _make_breakable(self):
        self.clocks = Clocks(self.state.path / "clock")
        self.value["breakable"] = {
            "clocks": {},
            "disks": [],
        }
        self._give_disk("nats", paths.make_dir(self.state.path / "nats"))

    def _give_disk(self, server, directory):
        """A file system of its own that can be filled, if the stack is breakable and this user may mount one."""
        disk = Disk(directory)
        if self.clocks is not None and disk.mount():
            self.disks[server] = disk
            self.value["breakable"]["disks"].append(server)

    # Servers.

    def start_servers(self, say, only=None):
        if self.tls_dir is not None:
            tls.init(self.programs / "apportion", self.tls_dir)
            shown = self._shown("otlp")
            self.value["tls"] = {
                "ca_file": str(tls.ca(self.tls_dir)),
                # The certificate of the driver, which receives spans.
                "otlp": {"cert_file": str(shown[0]), "key_file": str(shown[1])},
            }
        for name, start in (("NATS", self._start_nats), ("Postgres", self._start_postgres),
                            ("ClickHouse", self._start_clickhouse)):
            if only not in (None, name):
                continue
            began = time.monotonic()
            retry_ports(start)
            say(f"  {name:<11} ready in {time.monotonic() - began:.1f} s")
        self.value["otlp_listen"] = f"{LOOPBACK}:{self.kept.port('otlp')}"
        control = self.state.socket_dir("control") / "control.sock"
        self.supervisor.listen(control)
        self.value["control"] = str(control)
        self._write()

    def _shown(self, server):
        """The files of a server's certificate and of its key; None where there is no TLS."""
        return self.tls_dir and (tls.certificate(self.tls_dir, server), tls.key(self.tls_dir, server))

    def _open_door(self, server, port, target, *protocol):
        """Takes connections by TLS for a server that cannot."""
        program = Path(__file__).with_name("tls_door.py")
        self.supervisor.start(Spec(
            name=f"{server}-tls",
            argv=[sys.executable, str(program), str(port), str(target), *map(str, self._shown(server)), *protocol],
            ready=lambda: net.port_open(port),
        ))

    def _start_nats(self):
        port, monitor_port = self.kept.port("nats"), self.kept.port("nats monitor")
        cell, tenants = self.value["cell"]["name"], self.value["tenants"]
        config = self.state.path / "config" / "nats.conf"
        store_dir = paths.make_dir(self.state.path / "nats")
        # The tests and `up` bring simulated nodes.
        bus.init(self.programs / "apportion", self.bus_dir, cell, bus.of_new(self.bus_dir, tenants), "--simulated-fleet")
        bus_conf = bus.configuration(self.bus_dir)
        refuse_other_accounts(store_dir, bus_conf.read_text(encoding="utf-8"))
        monitor_url = f"http://{LOOPBACK}:{monitor_port}"
        store = BusStore(store_dir, monitor_url)

        def configure():
            # Feeds are promised to each of the many cells of tests.
            limit = nats_conf.UNLIMITED_BYTES if self.for_tests else store.set_limit()
            paths.write_private(config, nats_conf.render(
                config_dir=config.parent, port=port, monitor_port=monitor_port, store_dir=store_dir, bus_conf=bus_conf,
                file_store_bytes=limit, memory_store_bytes=self.sizes.nats.memory_store_bytes,
                shown=self._shown("nats")))

        configure()
        program = str(wheels.nats_server())
        check = subprocess.run([program, "-t", "-c", str(config)], capture_output=True, text=True)
        if check.returncode != 0:
            raise StackError("NATS refuses the configuration:\n" + (check.stderr or check.stdout).strip())
        self.supervisor.start(Spec(
            name="nats",
            argv=[program, "-c", str(config)],
            env=nats_conf.environment(self.sizes.nats),
            ready=lambda: http_ok(monitor_url + "/healthz"),
            disk=self.disks.get("nats"),
            prepare=configure,
            why_restart=None if self.for_tests else store.why_restart,
            advice="If the log shows nothing, is the disk full?",
        ))
        self.value["nats"] = {
            "url": f"{'tls' if self.tls_dir else 'nats'}://{LOOPBACK}:{port}",
            "monitor_url": monitor_url,
            # For tests that start a server.
            "program": program,
            # Of all parties of a cell, but not of the one that may delete its streams: readers of this file cannot.
            "creds": str(self.bus_dir / "creds"),
        }
        if self.for_tests:
            # They create cells and tenants.
            self.value["nats"] |= {"admin": str(self.bus_dir / "admin"), "bus": str(self.bus_dir)}

    def _start_postgres(self):
        roles = [SUPERUSER, READER, *SCHEMAS] + ([TEST_ROLE] if self.for_tests else [])
        postgres = Postgres(self.state, self.kept.port("postgres"), self.kept.passwords("postgres", roles),
                            self.sizes.postgres, test_role=self.for_tests, tls_only=self.tls_dir is not None)
        self._give_disk("postgres", postgres.home)
        if not postgres.data.exists():
            # It may have been elsewhere, and swept away there. The services fill it again from the ledger.
            self.kept.undo("postgres")
        if self.kept.is_done("postgres"):
            postgres.forget_killed()
        else:
            postgres.create()
        self.supervisor.start(replace(postgres.spec(), nice=self.nice, disk=self.disks.get("postgres")))
        if not self.kept.is_done("postgres"):
            postgres.create_roles()
            self.kept.done("postgres")

        def url(role):
            plain = postgres.url(role)
            return plain if self.tls_dir is None else tls.postgres_url(plain, tls.ca(self.tls_dir))

        if self.tls_dir is not None:
            self._open_door("postgres", postgres.port, postgres.socket(), "postgres")
        self.value["postgres"] = {
            "url": url(READER),
            "admin_url": url(TEST_ROLE if self.for_tests else SUPERUSER),
            # The services' configuration names the authority in a separate key.
            "urls": {role: postgres.url(role) for role in SCHEMAS},
            "port": postgres.port,
            "database": POSTGRES_DATABASE,
            "socket_dir": str(postgres.socket_dir),
        }

    def _start_clickhouse(self):
        names = ("test", "analytics", "reader") if self.for_tests else ("analytics", "reader")
        clickhouse = ClickHouse(self.state, self.kept.port("clickhouse"), self.kept.passwords("clickhouse", names),
                                self.sizes.clickhouse)
        self._give_disk("clickhouse", clickhouse.data)
        clickhouse.configure()
        self.supervisor.start(replace(clickhouse.spec(), nice=self.nice, disk=self.disks.get("clickhouse")))
        owner, url = names[0], clickhouse.url()
        if self.tls_dir is not None:
            port = self.kept.port("clickhouse-tls")
            self._open_door("clickhouse", port, clickhouse.port)
            url = f"https://{LOOPBACK}:{port}"
        self.value["clickhouse"] = {
            "url": url,
            "user": owner,
            "password": clickhouse.passwords[owner],
            "database": CLICKHOUSE_DATABASE,
            "reader": {"user": "reader", "password": clickhouse.passwords["reader"]},
        }

    # Services.

    def start_clock(self, plan_value, rate, lead_ms=LEAD_MS):
        """From now on the services' time is recorded time; it reaches the workload's epoch after the lead."""
        self.value["clock"] = {
            "origin_ms": plan_value["epoch_ms"] - lead_ms * rate,
            "started_ms": net.now_ms(),
            "rate": rate,
        }
        self.kept.clock(self.value["clock"])

    def start_services(self, say, together=False, replicas=1, level=None):
        """Creates the cell's streams and starts the services."""
        began = time.monotonic()
        self._cell_init(level=level)
        if together:
            self._start_together()
        else:
            self._start_apart(replicas)
        say(f"  {'services':<11} ready in {time.monotonic() - began:.1f} s")

    def _start_together(self):
        self.service_names = (services.TOGETHER,)
        for name in services.NAMES:
            self._write_service(name, name)
        ports = [service["http"].rsplit(":", 1)[1] for service in self.value["services"].values()]
        self.supervisor.start(services.together_spec(self.programs / "apportion", self.state.path / "config", ports))

    def _start_apart(self, replicas):
        started = [(services.process(service, replica), service)
                   for replica in range(1, replicas + 1) for service in services.NAMES]
        self.service_names = tuple(name for name, _ in started)
        if self.clocks:
            self.value["breakable"]["clocks"] = {name: str(self.clocks.file(name)) for name in self.service_names}
        for process in started:
            self._write_service(*process)
        for process in started:
            self._launch(*process)
        for process in started:
            self._await_service(*process)

    def start_fleet(self, workload, say):
        """
        For a stack that is furnished: a few simulated nodes, tenants with quotas, and rates: so that the first request by hand finds a place. A stack
        that goes on has its tenants, quotas and rates, perhaps others by now.
        """
        if not self.kept.stack()["furnished"]:
            return
        command = [str(self.programs / "loadtest"), "fleet", "--stack", str(self.file), "--workload", str(workload)]
        self.supervisor.launch(Spec(name=FLEET, argv=command, ready=lambda: True))
        self.service_names = (*self.service_names, FLEET)
        if self.kept.is_done("tenants"):
            say(f"  {'fleet':<11} simulated nodes")
            return
        for tenant in self.value["tenants"]:
            self._operator("tenant", tenant)
            for resource, limit in UP_QUOTA.items():
                self._operator("quota", "set", tenant, resource, limit)
        for resource, micro in UP_RATES.items():
            self._operator("rates", "set", resource, f"{micro // 10**6}.{micro % 10**6:06}")
        self.kept.done("tenants")
        say(f"  {'fleet':<11} simulated nodes; tenants have quotas, resources have rates")

    def start_agent(self, say):
        """A node that is this machine. Each run has a user of its own where the launcher may give it one."""
        program = self.programs / "apportion-node-agent"
        if not program.exists():
            raise StackError(f"{self.programs} has no {program.name}. Run: make build")
        port = self.kept.port(AGENT)
        config = self.state.path / "config" / "node-agent.toml"
        work_dir = self.state.dir_elsewhere("work", programs=True)
        run_users = users.of_runs(self.state.path)
        if run_users is not None:
            work_dir.chmod(0o711)
        tables = services.agent_config(self.value, AGENT_NODE, f"{LOOPBACK}:{port}", self.state.path / "agent", work_dir, run_users)
        paths.write_private(config, services.to_toml(tables))
        self.supervisor.start(services.spec(AGENT, program, config, port, {}))
        self.service_names = (*self.service_names, AGENT)
        runs_as = "each as a user of its own" if run_users is not None else "as your user, which can read the keys of this stack"
        say(f"  {'agent':<11} node {AGENT_NODE} is this machine, and runs commands {runs_as}")

    def _operator(self, *words):
        done = subprocess.run([str(self.programs / "apportion"), "--stack", str(self.file), *words],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode != 0:
            raise StackError(f"`apportion {' '.join(words)}` failed:\n" + (done.stdout + done.stderr).strip())

    def make_a_cell(self):
        """
        For tests, which connect all at once. NATS looks at an account that has no streams yet when somebody first needs
        it, and says until then that there is no JetStream; `up` makes its cell before anybody else connects.
        """
        self._cell_init({**self.value, "cell": {"name": "first", "number": services.CELL_NUMBER}})

    def _cell_init(self, value=None, level=None):
        config = self.state.path / "config" / "bus.toml"
        bus_config = services.bus_config(value or self.value, bus.creds(self.bus_dir, bus.BUS))
        paths.write_private(config, services.to_toml(bus_config))
        command = [str(self.programs / "apportion"), "cell", "init", "--config", str(config)]
        command += ["--level", str(level)] if level else []
        try:
            done = subprocess.run(command,
                                  stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                  timeout=CELL_INIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise StackError(f"`apportion cell init` did not finish in {CELL_INIT_TIMEOUT_S} s.") from None
        output = done.stdout + done.stderr
        paths.write_private(self.state.log("cell-init"), output)
        if done.returncode != 0:
            raise StackError("`apportion cell init` failed:\n" + output.strip())

    def _write_service(self, name, service):
        """Chooses the port of one of a service's processes and writes its configuration."""
        config = self.state.path / "config" / f"{name}.toml"
        address = f"{LOOPBACK}:{self.kept.port(name)}"
        self.value["services"][name] = {"http": address, "config": str(config)}
        paths.write_private(config, services.to_toml(services.config(service, self.value, address)))

    def _launch(self, name, service):
        said = self.value["services"][name]
        port = said["http"].rsplit(":", 1)[1]
        environment = self.clocks.environment(name) if self.clocks else {}
        program = self.programs / f"apportion-{service}"
        self.supervisor.launch(services.spec(name, program, said["config"], port, environment))

    def _await_service(self, name, service):
        for attempt in range(1, PORT_ATTEMPTS + 1):
            try:
                return self.supervisor.await_ready(name)
            except StartError as error:
                if not error.address_in_use or attempt == PORT_ATTEMPTS:
                    raise
            self._write_service(name, service)
            self._launch(name, service)

    def limits_reached(self):
        return limits.reached(self.state.path)

    # The file.

    def _write(self):
        """Written whenever a pid changes, so that who reads it finds the processes that run now."""
        if "control" in self.value:
            paths.write_json(self.file, {**self.value, "pids": self.supervisor.pids()})

    def stop(self):
        """Services first, while what they flush to still runs."""
        self.supervisor.stop_all([self.service_names, DOORS, SERVERS])
        self.supervisor.close()
        for disk in self.disks.values():
            disk.close()


def refuse_other_accounts(store_dir, bus_conf):
    """Streams of an account that is not configured are on disk and not there: the cell would begin with an empty ledger."""
    streams = store_dir / "jetstream"
    found = {path.name for path in streams.iterdir() if path.name.isalnum()} if streams.exists() else set()
    if strange := {name for name in found if name not in bus_conf}:
        raise StackError(f"{streams} has streams of accounts that there are no more: {', '.join(sorted(strange))}. To begin "
                         "anew without its data: make up FRESH=1")


def need_programs(programs):
    """Before anything is started: a missing program is cheaper to hear about now."""
    missing = [name for name in PROGRAMS if not (programs / name).exists()]
    if missing:
        raise StackError(f"{programs} has no {', '.join(missing)}. Run: make build")


def retry_ports(start):
    for attempt in range(1, PORT_ATTEMPTS + 1):
        try:
            return start()
        except StartError as error:
            if not error.address_in_use or attempt == PORT_ATTEMPTS:
                raise


def read(path):
    return json.loads(Path(path).read_text(encoding="utf-8"))


def plan(loadtest, workload, selection=()):
    """What a workload is about to need, asked of the program that will drive it. `selection` are its own arguments."""
    if not loadtest.exists():
        raise StackError(f"{loadtest} is missing. Run: make build")
    done = subprocess.run([str(loadtest), "plan", "--workload", str(workload), *selection, "--json", "-"],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode != 0:
        raise StackError(f"The workload {workload} cannot be used:\n" + (done.stderr or done.stdout).strip())
    return json.loads(done.stdout)
