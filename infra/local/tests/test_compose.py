"""docker-compose.yml without Docker: all that it names exists and fits together."""

import asyncio
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import tomllib
import unittest
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from apportion_local import breakable, bus, clickhouse, compose, nats_conf, net, postgres, services, tls, wheels
from apportion_local.paths import CHECKOUT

from .support import PATIENCE_S, PROGRAMS, Home, wait

TEXT = (CHECKOUT / "docker-compose.yml").read_text(encoding="utf-8")
COMPOSE = yaml.safe_load(TEXT)
SERVICES = COMPOSE["services"]
CONFIGS = CHECKOUT / "infra" / "compose" / "config"
# Ports that images listen on without a setting in one of our files.
IMAGE_PORTS = {"postgres": {5432}, "clickhouse": {8443}, "jaeger": {4317, 16686}, "prometheus": {9090},
               "grafana": {3000}}
STACK = {"cell": {}, "nats": {"url": "", "monitor_url": "", "creds": ""}, "clock": None, "otlp_listen": "",
         "tls": {"ca_file": ""},
         "operation_window_ms": 1, "lease_ms": 1, "postgres": {"urls": {services.schema(name): "" for name in services.WITH_POSTGRES}},
         "clickhouse": {"url": "", "user": "", "password": "", "database": ""}}
# Services that end when they are done.
ONCE = {"cell-init", "bootstrap"}
# Services without a health check, because their image has no program for one.
UNASKED = {"otel-collector"}


# Replaces the program of the image, and counts its runs.
NC = """#!{python}
import socket, sys
open("{asked}", "a").write(".")
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as server:
    server.sendall(sys.stdin.buffer.read())
    sys.stdout.buffer.write(b"".join(iter(lambda: server.recv(65536), b"")))
"""


async def publish_one(url, creds, make, timeout_s):
    """Creates the stream, or returns the number of a new message. None if it was not acknowledged in time."""
    import nats
    from nats.errors import TimeoutError as Unanswered

    client = await nats.connect(url, user_credentials=str(creds), connect_timeout=PATIENCE_S)
    try:
        if make:
            return await client.jetstream(timeout=PATIENCE_S).add_stream(name="APPORTION_c_LEDGER",
                                                                         subjects=["apportion.v1.c.ledger.*"])
        return (await client.jetstream().publish("apportion.v1.c.ledger.quota", bytes(1000), timeout=timeout_s)).seq
    except Unanswered:
        return None
    finally:
        await client.close()


def write_secrets(directory):
    compose.write_secrets(PROGRAMS / "apportion", directory)


def read(*parts):
    return CHECKOUT.joinpath("infra", *parts).read_text(encoding="utf-8")


def variables(service):
    """The variables that with-secrets makes of a service's secrets."""
    named = [secret.partition("-") for secret in SERVICES[service]["secrets"] if "." not in secret]
    return {f"{server}_PASSWORD_{user}".upper().replace("-", "_") for server, _, user in named}


def with_secrets(directory, *command, **environment):
    return subprocess.run(["/bin/sh", str(CHECKOUT / "infra/compose/with-secrets"), *command],
                          env={**os.environ, "SECRETS_DIRECTORY": str(directory), **environment},
                          stdin=subprocess.DEVNULL, capture_output=True, text=True)


def config(service):
    return tomllib.loads((CONFIGS / f"{service}.toml").read_text(encoding="utf-8"))


def ports():
    """The ports of each compose service, by its own configuration."""
    found = {name: set(values) for name, values in IMAGE_PORTS.items()}
    for key in ("listen", "http"):
        (port,) = re.findall(rf'^{key}: "0\.0\.0\.0:(\d+)"', read("nats", "nats.conf"), re.MULTILINE)
        for name in ("nats-1", "nats-2", "nats-3", "nats"):
            found.setdefault(name, set()).add(int(port))
    collector = yaml.safe_load(read("otel", "collector.yaml"))
    endpoints = [collector["receivers"]["otlp"]["protocols"]["grpc"]["endpoint"],
                 collector["extensions"]["health_check"]["endpoint"]]
    found["otel-collector"] = {int(endpoint.rsplit(":", 1)[1]) for endpoint in endpoints}
    for name in services.NAMES:
        found[name] = {int(config(name)["http"]["listen"].rsplit(":", 1)[1])}
    return found


@pytest.mark.fast
class Files(unittest.TestCase):
    def test_every_mounted_file_exists_and_every_volume_is_declared(self):
        for name, service in SERVICES.items():
            for mount in service.get("volumes", []):
                source = mount.split(":")[0]
                if source.startswith("."):
                    self.assertTrue((CHECKOUT / source).exists(), f"{name}: {source}")
                else:
                    self.assertIn(source, COMPOSE["volumes"], name)

    def test_every_config_that_a_command_names_is_mounted(self):
        for name, service in SERVICES.items():
            command = service.get("command", [])
            if service.get("image") != "apportion:local" or "--config" not in command:
                continue
            file = Path(command[command.index("--config") + 1])
            self.assertEqual(file.parent, Path("/etc/apportion"), name)
            self.assertTrue((CONFIGS / file.name).exists(), f"{name}: {file}")
            self.assertIn("./infra/compose/config:/etc/apportion:ro", service["volumes"])

    def test_the_image_has_every_program_that_a_command_names(self):
        dockerfile = read("Dockerfile")
        for name, service in SERVICES.items():
            if service.get("image") == "apportion:local" and name != "bootstrap":
                self.assertEqual(service["build"]["dockerfile"], "infra/Dockerfile")
                for program in [service["command"][0], *service.get("healthcheck", {}).get("test", ["", ""])[1:2]]:
                    self.assertRegex(dockerfile, rf"[\s/]{re.escape(program)}[\s;\\]", name)
        for source in re.findall(r"^COPY (?:--chmod=\d+ )?(infra/\S+)", dockerfile, re.MULTILINE):
            self.assertTrue((CHECKOUT / source).exists(), source)

    def test_images_are_pinned(self):
        for name, service in SERVICES.items():
            self.assertRegex(service["image"], r":[\w.-]*\d|^apportion:local$", name)

    def test_dependencies_and_conditions_can_be_met(self):
        for name, service in SERVICES.items():
            for other, how in service.get("depends_on", {}).items():
                self.assertIn(other, SERVICES, name)
                if how["condition"] == "service_healthy":
                    self.assertIn("healthcheck", SERVICES[other], f"{name} waits for {other}")


@pytest.mark.fast
class Bounds(unittest.TestCase):
    def test_every_service_has_limits_and_gains_no_rights(self):
        for name, service in SERVICES.items():
            for limit in ("cpus", "mem_limit", "pids_limit"):
                self.assertIn(limit, service, name)
            self.assertIn("no-new-privileges:true", service["security_opt"], name)

    def test_every_service_that_stays_has_a_health_check(self):
        checked = {name for name, service in SERVICES.items() if "healthcheck" in service}
        self.assertEqual(checked, set(SERVICES) - ONCE - UNASKED)

    def test_what_runs_once_is_done_again_until_it_works(self):
        for name in ONCE:
            self.assertEqual(SERVICES[name]["restart"], "on-failure")


@pytest.mark.fast
class Secrets(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        home = Home()
        cls.addClassCleanup(home.close)
        cls.made = home.path / "secrets"
        write_secrets(cls.made)

    def setUp(self):
        home = Home()
        self.addCleanup(home.close)
        self.directory = home.path / "secrets"
        shutil.copytree(self.made, self.directory)

    def test_no_password_is_in_the_file_or_comes_from_a_variable(self):
        # A service with a read-only file system gets no secret that is made of a variable.
        self.assertNotRegex(TEXT, r"(?<!\$)\$\{")
        for name, source in COMPOSE["secrets"].items():
            self.assertEqual(set(source), {"file"})
            self.assertRegex(source["file"], rf"^\./infra/secrets/(bus/((creds|admin)/)?|tls/)?{re.escape(name)}$")
        for name, service in SERVICES.items():
            for variable in service.get("environment", {}):
                self.assertNotRegex(variable, r"PASSWORD(?!__FILE$|_FILE$)", name)

    def test_make_secrets_makes_what_is_declared_once(self):
        named = {Path(secret["file"]).relative_to("infra/secrets") for secret in COMPOSE["secrets"].values()}
        before = self.files()
        self.assertLessEqual(named, set(before))
        self.assertEqual({path for path in before if len(path.parts) == 1} - named, {Path("stack.json")})
        gone = {Path("postgres-reader"), Path("bus/creds/quota.creds")}
        for path in gone:
            (self.directory / path).unlink()
        write_secrets(self.directory)
        after = self.files()
        self.assertEqual({name for name in before if before[name] != after[name]}, gone | {Path("stack"), Path("stack.json")})
        words = [text for name, text in after.items() if len(name.parts) == 1 and not name.name.startswith("stack")]
        self.assertEqual(len(words), len(set(words)))
        # Other users of the host cannot pass. Users of containers read the files that they get, but not the keys of the bus.
        self.assertEqual(self.directory.stat().st_mode & 0o777, 0o700)
        for path in after:
            given = path in named or len(path.parts) == 1
            self.assertEqual((self.directory / path).stat().st_mode & 0o777, 0o444 if given else 0o600, path)

    def files(self):
        found = [path for path in self.directory.rglob("*") if path.is_file()]
        return {path.relative_to(self.directory): path.read_text(encoding="utf-8") for path in found}

    def test_no_container_gets_a_key_of_the_bus_or_a_simulated_fleet(self):
        files = [secret["file"] for secret in COMPOSE["secrets"].values()]
        mounted = [volume for service in SERVICES.values() for volume in service.get("volumes", [])]
        for path in files + mounted:
            self.assertNotRegex(path, r"secrets/bus/(keys|tokens|plan)|secrets/tls/(ca\.key|tls\.json)|system\.creds|fleet|infra/secrets:")
        self.assertFalse(list(self.directory.rglob("fleet*")))

    def test_every_secret_is_used_and_every_used_one_declared(self):
        used = {secret for service in SERVICES.values() for secret in service.get("secrets", [])}
        self.assertEqual(used, set(COMPOSE["secrets"]))

    def test_the_command_line_finds_its_users(self):
        for name, host in (("stack", "nats"), ("stack.json", "127.0.0.1")):
            value = json.loads((self.directory / name).read_text(encoding="utf-8"))
            self.assertEqual(value["nats"]["url"], f"tls://{host}:4222")
            self.assertIn(4222, ports()["nats"])
        outside = Path(value["nats"]["creds"])
        self.assertTrue((outside / "operator.creds").exists() and (outside / "tenant-team-a.creds").exists())
        value = json.loads((self.directory / "stack").read_text(encoding="utf-8"))
        self.assertEqual(value["nats"]["creds"], "/run/secrets")
        self.assertIn("operator.creds", SERVICES["bootstrap"]["secrets"])

    def test_scripts_and_configurations_use_only_variables_their_container_has(self):
        used = {
            "postgres": set(re.findall(r"POSTGRES_PASSWORD_\w+", read("postgres", "init.sh"))),
            "clickhouse": set(re.findall(r'from_env="(\w+)"', read("clickhouse", "users.d", "apportion.xml"))),
        }
        bus = set(re.findall(r"\$(NATS_PASSWORD_\w+)", "".join(
            [read("nats", "nats.conf"), read("compose", "nats-start")])))
        used.update({name: bus for name in ("nats-1", "nats-2", "nats-3")})
        for name, wanted in used.items():
            self.assertTrue(wanted)
            self.assertLessEqual(wanted, variables(name), name)
            self.assertEqual(SERVICES[name]["entrypoint"], ["/bin/sh", "/usr/local/bin/with-secrets"])
            self.assertIn("./infra/compose/with-secrets:/usr/local/bin/with-secrets:ro", SERVICES[name]["volumes"])

    def test_every_secret_file_is_given_to_the_service_that_reads_it(self):
        for service, file in [("cell-init", "bus")] + [(name, name) for name in services.NAMES]:
            tables = config(file)
            keys = ("password_file", "creds", "signing_key_file", "ca_file")
            wanted = {Path(table[key]).name for table in tables.values() for key in keys if key in table}
            self.assertEqual(wanted, set(SERVICES[service]["secrets"]), service)
            self.assertLessEqual(wanted, set(COMPOSE["secrets"]))

    def test_each_party_has_its_own_creds_and_nobody_else_has_them(self):
        holders = {}
        for name, service in SERVICES.items():
            for secret in service.get("secrets", []):
                if secret.endswith((".creds", ".nk")):
                    holders.setdefault(secret, []).append(name)
        expected = {f"{name}.creds": [name] for name in services.NAMES}
        expected |= {"bus.creds": ["cell-init"], "operator.creds": ["bootstrap"], "node-signing.nk": ["node-heartbeat"]}
        self.assertEqual(holders, expected)

    def test_a_server_gets_its_secrets_as_variables_and_its_arguments(self):
        done = with_secrets(self.directory, "/bin/sh", "-c", 'echo "$NATS_PASSWORD_ROUTE" "$0"', "a b")
        word = (self.directory / "nats-route").read_text(encoding="utf-8").strip()
        self.assertEqual((done.returncode, done.stdout), (0, f"{word} a b\n"), done.stderr)

    def test_what_is_no_password_is_refused(self):
        for text in ("change-me-nats-operator", "p-change-me-0123456789", "", "short", "with a space in the middle",
                     "0123456789abcdef0123", 'quote"quote"quote"quote', "two\nlines-of-a-password"):
            path = self.directory / "nats-route"
            path.unlink()
            path.write_text(text, encoding="utf-8")
            done = with_secrets(self.directory, "echo", "started")
            self.assertEqual((done.returncode, done.stdout), (1, ""), text)
            self.assertIn("nats-route", done.stderr)
            if len(text) > 5:
                self.assertNotIn(text, done.stderr)
        done = with_secrets(self.directory / "none", "echo", "started")
        self.assertEqual((done.returncode, done.stdout), (1, ""))


@pytest.mark.fast
class Ports(unittest.TestCase):
    def test_published_ports_are_on_loopback_unique_and_listened_on(self):
        published = []
        for name, service in SERVICES.items():
            for port in service.get("ports", []):
                address, outside, inside = port.split(":")
                self.assertEqual(address, "127.0.0.1", name)
                self.assertIn(int(inside), ports()[name], name)
                published.append(outside)
        # The monitoring page asks for no password.
        self.assertNotIn("8222", published)
        self.assertEqual(len(published), len(set(published)))

    def test_health_checks_ask_the_port_of_their_service(self):
        for name in services.NAMES:
            self.assertEqual({int(SERVICES[name]["healthcheck"]["test"][-1])}, ports()[name])

    def test_every_address_in_a_configuration_is_a_service_that_listens_there(self):
        addresses = []
        for path in sorted(CONFIGS.glob("*.toml")):
            text = path.read_text(encoding="utf-8")
            addresses += re.findall(r'"(?:tls|https?|postgres)://(?:[\w-]+@)?([\w-]+):(\d+)', text)
        addresses += re.findall(r"http://([\w-]+):(\d+)", read("grafana", "provisioning", "datasources",
                                                               "apportion.yaml"))
        exporter = yaml.safe_load(read("otel", "collector.yaml"))["exporters"]["otlp/jaeger"]["endpoint"]
        addresses.append(tuple(exporter.split(":")))
        (job,) = yaml.safe_load(read("otel", "prometheus.yaml"))["scrape_configs"]
        scraped = job["static_configs"][0]["targets"]
        self.assertEqual({target.split(":")[0] for target in scraped}, set(services.NAMES))
        addresses += [tuple(target.split(":")) for target in scraped]
        for host, port in addresses:
            self.assertIn(int(port), ports()[host], host)

    def test_the_alias_of_the_bus_is_given_to_all_three(self):
        for name in ("nats-1", "nats-2", "nats-3"):
            self.assertEqual(SERVICES[name]["networks"]["default"]["aliases"], ["nats"])


@pytest.mark.fast
class Configs(unittest.TestCase):
    def test_each_service_has_the_tables_and_users_that_the_local_stack_gives_it(self):
        for name in services.NAMES:
            tables = config(name)
            self.assertEqual(tables["cell"]["name"], compose.CELL)
            self.assertEqual(tables["nats"]["creds"], f"/run/secrets/{name}.creds")
            for table in {"nats", "telemetry", "postgres", "clickhouse"} & set(tables):
                self.assertEqual(tables[table]["ca_file"], "/run/secrets/ca.pem", f"{name} {table}")
            self.assertEqual(set(tables["nats"]), set(services.config(name, STACK, "x")["nats"]))
            self.assertEqual("postgres" in tables, name in services.WITH_POSTGRES)
            if "postgres" in tables:
                url = urlsplit(tables["postgres"]["url"])
                self.assertEqual((url.username, url.path), (services.schema(name), "/" + postgres.DATABASE))
                self.assertEqual(tables["postgres"]["schema"], services.schema(name))
            self.assertEqual("clickhouse" in tables, name == "analytics")
        self.assertEqual(config("bus")["nats"]["creds"], "/run/secrets/bus.creds")
        self.assertEqual(set(config("bus")), {"cell", "nats", "log"})
        # The local stack's lease is shorter, so that its tests wait less.
        example = tomllib.loads((CHECKOUT / "services/node-heartbeat/config.example.toml").read_text(encoding="utf-8"))
        self.assertEqual(config("node-heartbeat")["service"], {"lease_ms": example["service"]["lease_ms"]})


@pytest.mark.system
class Servers(unittest.TestCase):
    def nats_start(self, home, replaced):
        """The container's command that starts the bus, in the test's directory and with some words replaced."""
        text = read("nats", "nats.conf").replace('"/data"', f'"{home}/data"')
        self.assertIn("../../run/secrets/", text)
        text = text.replace("../../run/secrets/", "secrets/bus/").replace('"/run/secrets/', f'"{home}/secrets/tls/')
        Path(home, "nats.conf").write_text(text, encoding="utf-8")
        Path(home, "data").mkdir()
        text = read("compose", "nats-start")
        for word, other in {"/etc/nats/": f"{home}/", "=/data": f"={home}/data", **replaced}.items():
            self.assertIn(word, text)
            text = text.replace(word, other)
        Path(home, "nats-start").write_text(text, encoding="utf-8")
        return ["/bin/sh", f"{home}/nats-start"]

    def test_nats_accepts_the_configuration(self):
        with tempfile.TemporaryDirectory(prefix="apportion-test-") as home:
            start = self.nats_start(home, {"nats-server --config": "nats-server -t --config"})
            write_secrets(Path(home, "secrets"))
            path = f"{wheels.nats_server().parent}:{os.environ['PATH']}"
            done = with_secrets(f"{home}/secrets", *start, PATH=path, NATS_SERVER_NAME="nats-1")
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_bus_whose_disk_was_full_ends_to_be_started_again_when_there_is_room_and_not_before(self):
        directory = Home()
        self.addCleanup(directory.close)
        home = str(directory.path)
        port, monitor_port = net.free_port(), net.free_port()
        start = self.nats_start(home, {"127.0.0.1 8222": f"127.0.0.1 {monitor_port}", "sleep 5": "sleep 0.1"})
        disk = breakable.Disk(Path(home, "data"))
        if not disk.mount():
            self.skipTest("this user may not mount a file system in memory")
        self.addCleanup(disk.close)
        # One server is enough for this. All else is as in the containers.
        bus_dir = Path(home, "bus")
        bus.init(PROGRAMS / "apportion", bus_dir, "c", [])
        text = nats_conf.render(config_dir=home, port=port, monitor_port=monitor_port, store_dir=f"{home}/data",
                                bus_conf=bus.configuration(bus_dir), file_store_bytes="$NATS_MAX_FILE_STORE")
        Path(home, "nats.conf").write_text(text, encoding="utf-8")
        asked = Path(home, "asked")
        Path(home, "nc").write_text(NC.format(python=sys.executable, asked=asked), encoding="utf-8")
        Path(home, "nc").chmod(0o755)
        environment = {**os.environ, "NATS_PASSWORD_ROUTE": "pw-route",
                       "PATH": f"{home}:{wheels.nats_server().parent}:{os.environ['PATH']}"}

        def up():
            with open(f"{home}/nats.log", "a") as log:
                process = subprocess.Popen(start, env=environment, stdin=subprocess.DEVNULL, stderr=log)
            self.addCleanup(process.wait)
            self.addCleanup(process.terminate)
            wait(lambda: net.http_ok(f"http://127.0.0.1:{monitor_port}/healthz"), "NATS answers")
            return process

        def publish(user, make=False, timeout_s=PATIENCE_S):
            return asyncio.run(publish_one(f"nats://127.0.0.1:{port}", bus.creds(bus_dir, user), make, timeout_s))

        first = up()
        publish("bus", make=True)
        before = publish("quota")
        disk.fill()
        # The last one stays unanswered.
        acknowledged = iter(lambda: publish("quota", timeout_s=5), None)
        before = max([before, *acknowledged])
        polls = asked.stat().st_size
        wait(lambda: asked.stat().st_size >= polls + 5, "the watcher polls the full server")
        self.assertIsNone(first.poll())
        disk.free()
        first.wait(PATIENCE_S)
        up()
        self.assertEqual(publish("quota"), before + 1)

    def test_three_servers_of_the_bus_know_each_other_by_their_certificates_and_take_clients_by_tls_only(self):
        """As in the containers, except for names and ports: here all three are on this machine."""
        directory = Home()
        self.addCleanup(directory.close)
        write_secrets(directory.path / "secrets")
        other = directory.path / "other"
        tls.init(PROGRAMS / "apportion", other)
        ports = [{name: net.free_port() for name in ("client", "monitor", "route")} for _ in range(3)]

        def start(number, authority):
            home = directory.path / str(number)
            home.mkdir()
            text = read("nats", "nats.conf").replace('"/data"', f'"{home}/data"')
            bus_conf = bus.configuration(directory.path / "secrets/bus").read_text(encoding="utf-8")
            (home / "bus.conf").write_text(bus_conf.replace(compose.RESOLVER_DIR, f"{home}/accounts"), encoding="utf-8")
            text = text.replace("../../run/secrets/", "").replace('"/run/secrets/', f'"{authority}/')
            for port, name in ((4222, "client"), (8222, "monitor"), (6222, "route")):
                text = text.replace(f"0.0.0.0:{port}", f"127.0.0.1:{ports[number][name]}")
            (home / "nats.conf").write_text(text, encoding="utf-8")
            routes = {f"NATS_ROUTE_{at + 1}": f'"nats://route:pw-route@127.0.0.1:{port["route"]}"'
                      for at, port in enumerate(ports)}
            environment = {**os.environ, **routes, "NATS_PASSWORD_ROUTE": "pw-route", "NATS_MAX_FILE_STORE": "1GB",
                           "NATS_SERVER_NAME": f"nats-{number}"}
            with (home / "log").open("w") as log:
                process = subprocess.Popen([str(wheels.nats_server()), "-c", str(home / "nats.conf")], env=environment,
                                           stdin=subprocess.DEVNULL, stderr=log)
            self.addCleanup(process.wait)
            self.addCleanup(process.kill)

        def found(number):
            page = net.http_text(f"http://127.0.0.1:{ports[number]['monitor']}/routez")
            return {route["remote_name"] for route in json.loads(page)["routes"]} if page else set()

        tls_dir = directory.path / "secrets/tls"
        start(0, tls_dir)
        start(1, tls_dir)
        wait(lambda: (found(0), found(1)) == ({"nats-1"}, {"nats-0"}), "two servers have found each other")
        # It knows the password of routes, and has another authority's certificate.
        start(2, other)
        wait(lambda: "tls" in (directory.path / "2/log").read_text(encoding="utf-8").lower(), "the third one reports TLS")
        self.assertEqual((found(0), found(1), found(2)), ({"nats-1"}, {"nats-0"}, set()))
        with socket.create_connection(("127.0.0.1", ports[0]["client"]), timeout=PATIENCE_S) as client:
            self.assertIn(b'"tls_required":true', client.makefile("rb").readline())

    def test_who_is_not_encrypted_gets_into_no_database(self):
        rules = [line.split() for line in read("postgres", "pg_hba.conf").splitlines() if line and line[0] != "#"]
        self.assertEqual({rule[0] for rule in rules}, {"local", "hostssl"})
        listening = ElementTree.fromstring(read("clickhouse", "config.d", "tls.xml"))
        for port in ("http_port", "tcp_port", "mysql_port", "postgresql_port", "interserver_http_port"):
            self.assertEqual(listening.find(port).get("remove"), "1", port)
        self.assertEqual([entry.find("host").text for entry in listening.find("protocols")], ["127.0.0.1"])
        self.assertIn(int(listening.find("https_port").text), IMAGE_PORTS["clickhouse"])
        self.assertIn("tls", yaml.safe_load(read("otel", "collector.yaml"))["receivers"]["otlp"]["protocols"]["grpc"])

    def test_each_server_shows_what_it_was_given_and_no_other_has_its_key(self):
        named = {"nats": ["nats-1", "nats-2", "nats-3"], "postgres": ["postgres"], "clickhouse": ["clickhouse"],
                 "otlp": ["otel-collector"]}
        self.assertEqual(set(named), set(tls.SERVERS))
        for server, containers in named.items():
            holders = [name for name, service in SERVICES.items() if f"{server}.key" in service.get("secrets", [])]
            self.assertEqual(holders, containers)
            text = "".join([TEXT, read("nats", "nats.conf"), read("clickhouse", "config.d", "tls.xml"),
                            read("otel", "collector.yaml"), read("compose", "postgres-start")])
            for kind in ("pem", "key"):
                self.assertIn(f"/run/secrets/{server}.{kind}", text)

    def test_certificates_are_for_the_names_by_which_servers_are_reached(self):
        addresses = {urlsplit(table[key]).hostname for name in services.NAMES for table in config(name).values()
                     for key in ("url", "otlp_endpoint") if key in table}
        self.assertLessEqual(addresses, set(compose.HOSTS))
        self.assertLessEqual({f"nats-{number}" for number in (1, 2, 3)}, set(compose.HOSTS))

    def test_an_acknowledged_message_is_on_disk(self):
        self.assertRegex(read("nats", "nats.conf"), r"(?m)^  sync_interval: always$")

    def test_postgres_gets_the_same_roles_as_the_local_stack(self):
        """Both in one form: with the script's variables replaced, and sorted statements."""
        script = read("postgres", "init.sh")
        first, per_role = [block for block in re.findall(r"<<'SQL'\n(.*?)\nSQL", script, re.DOTALL)][::-1]
        roles = re.findall(r"^owner (\w+)", script, re.MULTILINE)
        text = first + "\n" + "\n".join(per_role.replace(':"role"', role) for role in roles)
        passwords = {role: "pw" for role in (*postgres.SCHEMAS, postgres.READER)}
        local = postgres.roles_sql(passwords, test_role=False)
        self.assertEqual(sorted(text.replace(":'password'", "'pw'").splitlines()), sorted(local.splitlines()))

    def test_clickhouse_gets_the_same_users_and_grants_as_the_local_stack(self):
        users = ElementTree.fromstring(read("clickhouse", "users.d", "apportion.xml")).find("users")
        grants = {user.tag: [query.text.removeprefix("GRANT ") for query in user.iter("query")] for user in users}
        self.assertEqual(grants, {name: clickhouse.USER_GRANTS[name] for name in ("analytics", "reader")})

    def test_clickhouse_gets_the_same_limits_as_the_local_stack_and_nobody_raises_them(self):
        root = ElementTree.fromstring(read("clickhouse", "users.d", "apportion.xml"))
        local = ElementTree.fromstring(clickhouse.users_xml({"analytics": "x", "reader": "x"}))
        wanted = {"apportion_owner": clickhouse.OWNER_LIMITS, "apportion_reader": clickhouse.READER_LIMITS}
        self.assertEqual({profile.tag for profile in root.find("profiles")}, set(wanted))
        for name, limits in wanted.items():
            for profiles in (root.find("profiles"), local.find("profiles")):
                profile = profiles.find(name)
                values = {setting.tag: setting.text for setting in profile if setting.tag != "constraints"}
                fixed = {setting.tag for setting in profile.find("constraints") if setting.find("readonly") is not None}
                self.assertEqual({key: values.get(key) for key in limits},
                                 {key: str(value) for key, value in limits.items()})
                self.assertLessEqual(set(limits), fixed)
        profiles = {user.tag: user.find("profile").text for user in root.find("users")}
        self.assertEqual(profiles, {"analytics": "apportion_owner", "reader": "apportion_reader"})
