"""The commands of the launcher."""

import argparse
import contextlib
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

from . import compose, kept, limits, machine, npm, paths, services, stack, wheels
from .machine import Sized
from .net import LOOPBACK, http_ok, wait_until
from .paths import CHECKOUT, LOCAL, StackError, StateDir
from .postgres import READER
from .stack import Stack
from .supervisor import child_setup, describe_exit

CELL = "local"
UP_STATE = LOCAL / "up"
UP_TENANTS = ["team-a", "team-b"]
TEST_TENANTS = ["tenant-a", "tenant-b", "tenant-c"]
COMMAND_GRACE_S = 15.0
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(Exception):
    """SIGINT or SIGTERM: stop what was started, in order."""

    def __init__(self, number):
        self.exit_code = 128 + number
        super().__init__(signal.Signals(number).name)


def main(arguments=None):
    # What follows "--" belongs to another program; argparse would look into it.
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    rest = []
    if "--" in arguments:
        at = arguments.index("--")
        arguments, rest = arguments[:at], arguments[at + 1:]
    options = parser().parse_args(arguments)
    options.rest = rest
    for number in STOP_SIGNALS:
        # A hang-up that nohup has switched off stays off.
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, raise_stopped)
    try:
        return options.run(options)
    except StackError as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    except Stopped as stopped:
        print(f"\nStopped by {stopped}.", file=sys.stderr)
        return stopped.exit_code


def raise_stopped(number, _frame):
    # Once: while things are being stopped, an impatient second Ctrl-C must not leave half of them running.
    ignore_stop_signals()
    raise Stopped(number)


def ignore_stop_signals():
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def parser():
    top = argparse.ArgumentParser(
        prog="stack.py", description="NATS, Postgres, ClickHouse and the five services on free loopback ports.")
    commands = top.add_subparsers(dest="command", required=True)

    def command(name, run, help_text):
        sub = commands.add_parser(name, help=help_text, description=help_text)
        sub.set_defaults(run=run)
        return sub

    def program_options(sub, profile):
        sub.add_argument("--profile", choices=("quick", "release", "debug"), default=profile, help="cargo's profile")
        sub.add_argument("--bin-dir", type=Path, help="directory of the programs, if not <target>/<profile>")

    def tls_option(sub):
        sub.add_argument("--tls", action=argparse.BooleanOptionalAction,
                         help="servers accept TLS connections only, with certificates of the stack's authority")

    def stack_options(sub):
        program_options(sub, "quick")
        tls_option(sub)
        sub.add_argument("--cell", help=f"name of the cell (default: {CELL})")
        sub.add_argument("--state", type=Path, help="directory for data, logs and configuration")

    setup = command("setup", cmd_setup, "install the chart library into .local/page, then the pinned wheels into .local/venv; "
                                        "setup -- CMD... installs the wheels while CMD runs")
    setup.add_argument("--only", choices=("page", "wheels", "focus"),
                       help="one part: the chart library, which the build embeds; the wheels; or the validator of FOCUS for "
                            "the tests (590 MB), which is in none of the other parts")
    command("target-dir", cmd_target_dir, "print the target directory of cargo")

    run = command("run", cmd_run, "start everything, replay a workload, stop everything")
    run.add_argument("--workload", type=Path, default=CHECKOUT / "loadtest/workloads/openb")
    run.add_argument("--report", type=Path, default=CHECKOUT / "target/run/report.json")
    run.add_argument("--first-day", type=int, help="replay only pods that were created from this recorded day on")
    run.add_argument("--days", type=positive, help="replay only pods that were created in this number of days")
    run.add_argument("--repeat", type=positive, help="replay each pod this number of times")
    run.add_argument("--load", type=positive,
                     help="keep only the nodes of which the pods request this percentage of GPU time")
    run.add_argument("--limit-pods", type=int, help="replay only the first pods of the workload")
    run.add_argument("--limit-nodes", type=int, help="use only the first nodes of the workload")
    run.add_argument("--replay-seconds", type=int, help="real time for the whole recorded time (default: 75)")
    run.add_argument("--lead-seconds", type=int, default=stack.LEAD_MS // 1000,
                     help="real time before the recorded time begins (default: %(default)s)")
    stack_options(run)

    for name, function in (("up", cmd_up), ("_serve", cmd_serve)):
        up = command(name, function, "start everything and leave it running")
        up.add_argument("--workload", type=Path, help="take tenants and clock from a workload")
        up.add_argument("--rate", type=int, help="recorded milliseconds per real one, instead of the workload's")
        up.add_argument("--tenants", type=positive,
                        help="number of tenants; without nodes, quotas and rates, which a benchmark sets")
        up.add_argument("--operation-window-s", type=positive, help="seconds for which operation IDs are remembered")
        up.add_argument("--lease-s", type=positive, help="seconds until a node without heartbeats is lost")
        up.add_argument("--level", type=positive, help="the cell's feature level, instead of the newest")
        up.add_argument("--together", action="store_true", help="run the five services as one process")
        up.add_argument("--replicas", type=positive, default=1,
                        help="processes of each service; one leads, the others are standbys (default: %(default)s)")
        up.add_argument("--agent", action="store_true", help="add an agent for this machine, which runs commands, to the simulated nodes")
        up.add_argument("--breakable", action="store_true",
                        help="clocks that can be set wrong and disks that can be filled, for loadtest chaos")
        up.add_argument("--fresh", action="store_true", help="discard existing data")
        stack_options(up)
        if name == "_serve":
            up.add_argument("--report-fd", type=int, required=True)

    for name, function, text in (("down", cmd_down, "stop what `up` started"),
                                 ("status", cmd_status, "show the processes that `up` started, their health and the limits that servers have reached")):
        sub = command(name, function, text)
        sub.add_argument("--state", type=Path, help="the directory given to `up`")

    secrets = command("compose-secrets", cmd_compose_secrets,
                      "make the passwords, keys and creds of docker-compose.yml that are missing")
    program_options(secrets, "quick")

    servers = command("with-servers", cmd_with_servers, "run a command beside fresh servers: with-servers -- CMD...")
    servers.add_argument("--state", type=Path, help="directory for data, logs and configuration")
    servers.add_argument("--only", choices=("Postgres",), help="without the other servers, and so without built programs")
    program_options(servers, "debug")
    tls_option(servers)
    return top


# setup


SETUP = {"page": npm.setup, "wheels": wheels.setup, "focus": wheels.setup_focus}


def cmd_setup(options):
    if options.rest and options.only:
        raise StackError("--only and a command: the wheels are installed while a command runs.")
    if options.rest:
        return set_up_beside(options.rest)
    for part in [options.only] if options.only else ("page", "wheels"):
        SETUP[part](say)
    say("Ready.")
    return 0


def set_up_beside(command):
    """Runs a build while the wheels are installed. If they cannot be installed, the build is ended and the error shown."""
    # The build embeds the chart library.
    npm.setup(say)
    process = start_command(command)
    # On a terminal, the build's progress bar is on the last line.
    erase = "\r\x1b[K" if sys.stdout.isatty() else ""
    try:
        wheels.setup(lambda line: say(f"{erase}{line}"))
        process.wait()
    except (StackError, Stopped) as reason:
        end_command(process, reason)
        raise
    if process.returncode != 0:
        print(f"\nFailed ({describe_exit(process.returncode)}): {shlex.join(command)}", file=sys.stderr)
    return exit_code(process)


def cmd_target_dir(_options):
    say(paths.target_dir())
    return 0


def cmd_compose_secrets(options):
    compose.write_secrets(programs_of(options) / "apportion")
    say(f"Passwords, keys and creds: {compose.SECRETS.relative_to(CHECKOUT)}")
    return 0


# run


def cmd_run(options):
    programs = programs_of(options)
    stack.need_programs(programs)
    workload = options.workload.resolve()
    selection = chosen(options, "first_day", "days", "repeat", "load", "limit_pods", "limit_nodes")
    plan = stack.plan(programs / "loadtest", workload, [*selection, *chosen(options, "replay_seconds")])
    sized = Sized(machine.found())
    state = open_run_state("run", options)
    stack_ = Stack(state, programs, sized, stack.beginning(options.cell or CELL, plan["tenants"], tls_only=bool(options.tls)))
    code = 1
    try:
        say(f"Starting the stack in {short(state.path)}:")
        say(f"  {sized}")
        stack_.start_servers(say)
        stack_.start_clock(plan, plan["rate"], options.lead_seconds * 1000)
        stack_.start_services(say)
        report = options.report.resolve()
        report.parent.mkdir(parents=True, exist_ok=True)
        code = run_command(stack_, [
            str(programs / "loadtest"), "drive", "--stack", str(stack_.file), "--workload", str(workload),
            "--report", str(report), *selection, *options.rest], {})
    finally:
        finish(stack_, state, code, keep_all=options.state is not None)
    return code


def chosen(options, *names):
    """The options that were given, as arguments for another program that has them too."""
    given = [(name, getattr(options, name)) for name in names]
    return [text for name, value in given if value is not None for text in (f"--{name.replace('_', '-')}", str(value))]


def programs_of(options):
    return options.bin_dir.resolve() if options.bin_dir else paths.bin_dir(options.profile)


def open_state(path, lasting=False, fresh=True):
    return StateDir(path.resolve(), traversable=os.geteuid() == 0, lasting=lasting, fresh=fresh)


def open_run_state(prefix, options):
    """A directory for one run. One launcher at a time looks here, so that none sweeps what another just made."""
    paths.make_dir(LOCAL, 0o755)
    with paths.locked(LOCAL / "state.lock"):
        paths.sweep(prefix)
        return open_state(options.state or LOCAL / f"{prefix}-{os.getpid()}")


def say(line):
    """Prints a line to standard output. The launcher continues if the reader of the pipe has ended."""
    try:
        print(line, flush=True)
    except BrokenPipeError:
        # Python flushes standard output again at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def run_command(stack_, argv, environment):
    """Runs a command in the foreground, on this terminal, while the supervisor does its work."""
    process = start_command(argv, environment)
    try:
        while process.poll() is None:
            stack_.supervisor.poll(timeout_s=1.0)
    except Stopped as stopped:
        end_command(process, stopped)
        raise
    return exit_code(process)


def start_command(argv, environment=()):
    try:
        return subprocess.Popen(argv, env={**os.environ, **dict(environment)},
                                preexec_fn=child_setup(os.getpid(), None, signal.SIGTERM))
    except FileNotFoundError as error:
        raise StackError(f"Cannot run {argv[0]}: {error.strerror}") from None


def exit_code(process):
    """The exit code as a shell has it: 128 and the number for a signal."""
    return process.returncode if process.returncode >= 0 else 128 - process.returncode


def end_command(process, reason):
    """Ends a command and its descendants. Ctrl-C has reached them already, because they share the terminal."""
    started = [process.pid] + descendants(process.pid)
    by_terminal = isinstance(reason, Stopped) and reason.exit_code == 128 + signal.SIGINT and os.isatty(0)
    if not by_terminal:
        for pid in started:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
    try:
        process.wait(COMMAND_GRACE_S)
    except subprocess.TimeoutExpired:
        for pid in [process.pid] + descendants(process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()


def descendants(pid):
    """The processes below one, by their parents in /proc."""
    children = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, IndexError, ValueError):
                # The name, in parentheses, may hold anything; the parent is the second field after it.
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    found, todo = [], [pid]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


def finish(stack_, state, code, keep_all):
    """Stops everything; keeps the logs when something went wrong, and names the limits that servers have reached."""
    ignore_stop_signals()
    stack_.stop()
    # Tests exceed limits on purpose.
    for line in stack_.limits_reached() if code != 0 or not stack_.for_tests else ():
        print(line, file=sys.stderr)
    keep = "everything" if keep_all else "nothing" if code == 0 else "logs"
    state.close(keep)
    if keep != "nothing":
        print(f"Logs: {short(state.path / 'log')}", file=sys.stderr)


def short(path):
    """A path as one would type it in the checkout."""
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else path


# with-servers


def cmd_with_servers(options):
    if not options.rest:
        raise StackError("with-servers needs a command: stack.py with-servers -- CMD...")
    sized = Sized(machine.found(), for_tests=True)
    # A program may read the output of the command.
    print(sized, file=sys.stderr)
    state = open_run_state("test", options)
    # Every test has its own cell, so the server's permissions cannot name one.
    begin = stack.beginning("*", TEST_TENANTS, tls_only=bool(options.tls))
    stack_ = Stack(state, programs_of(options), sized, begin, for_tests=True)
    code = 1
    try:
        stack_.start_servers(lambda _line: None, options.only)
        if options.only is None:
            stack_.make_a_cell()
        code = run_command(stack_, options.rest, {
            "APPORTION_TEST_STACK": str(stack_.file),
            "DATABASE_URL": stack_.value["postgres"]["admin_url"],
        })
    finally:
        finish(stack_, state, code, keep_all=options.state is not None)
    return code


# up, down, status


def cmd_up(options):
    """Starts a launcher of its own session and waits for its word that all is ready."""
    state = (options.state or UP_STATE).resolve()
    if is_up(state):
        if options.fresh:
            raise StackError(f"The stack already runs from {short(state)}. Stop it first: make down")
        value = stack.read(state / "stack.json")
        if options.tls is not None and options.tls != ("tls" in value):
            how = "without TLS" if options.tls else "with TLS"
            raise StackError(f"The stack runs {how} from {short(state)}. Stop it first, and it goes on: make down")
        say(f"The stack already runs from {short(state)}.")
        show(value, state, programs_of(options))
        return 0
    wheels.setup(say)
    reader, writer = os.pipe()
    command = [sys.executable, str(CHECKOUT / "infra/local/stack.py"), "_serve", "--report-fd", str(writer),
               "--state", str(state), "--profile", options.profile, "--replicas", str(options.replicas)]
    if options.workload:
        command += ["--workload", str(options.workload.resolve())]
    command += chosen(options, "cell", "rate", "tenants", "operation_window_s", "lease_s", "level")
    command += [f"--{name}" for name in ("together", "breakable", "fresh", "agent") if getattr(options, name)]
    if options.tls is not None:
        command += ["--tls" if options.tls else "--no-tls"]
    if options.bin_dir:
        command += ["--bin-dir", str(options.bin_dir.resolve())]
    process = subprocess.Popen(command, pass_fds=[writer], start_new_session=True, cwd="/", stdin=subprocess.DEVNULL,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    os.close(writer)
    try:
        with os.fdopen(reader, encoding="utf-8") as lines:
            ready = False
            for line in lines:
                ready = line == "ready\n"
                if not ready:
                    say(line.removesuffix("\n"))
    except Stopped:
        process.terminate()
        process.wait()
        raise
    if not ready:
        return 1
    show(stack.read(state / "stack.json"), state, programs_of(options))
    return 0


def cmd_serve(options):
    """The launcher behind `up`: reports its start-up on a pipe, then supervises until it is told to stop."""
    with os.fdopen(options.report_fd, "w", encoding="utf-8", buffering=1) as report:
        try:
            stack_, state = serve_start(options, lambda line: print(line, file=report))
        except (StackError, Stopped) as error:
            print(f"\n{error}", file=report)
            return 1
        print("ready", file=report)
    try:
        while True:
            stack_.supervisor.poll(timeout_s=60.0)
    except Stopped:
        return 0
    finally:
        finish(stack_, state, code=0, keep_all=True)


def serve_start(options, tell):
    if options.replicas > 1 and options.together:
        raise StackError("--replicas and --together: one process has each service once.")
    programs, sized = programs_of(options), Sized(machine.found())
    stack.need_programs(programs)
    begins = options.fresh or not (options.state / kept.FILE).exists()
    if not begins:
        refuse_other(options)
    begin, clock = beginning(options, programs) if begins else (None, None)
    state = open_state(options.state, lasting=True, fresh=begins)
    paths.write_private(state.path / "launcher.pid", f"{os.getpid()}\n")
    stack_ = Stack(state, programs, sized, begin, tls_only=options.tls)
    try:
        tell(f"Starting the stack in {state.path}:" if begins else f"Going on with the stack in {state.path}:")
        tell(f"  {sized}")
        stack_.start_servers(tell)
        if clock is not None:
            stack_.start_clock(*clock)
        stack_.start_services(tell, together=options.together, replicas=options.replicas, level=options.level)
        stack_.start_fleet(CHECKOUT / "loadtest/workloads/openb", tell)
        if options.agent:
            stack_.start_agent(tell)
    except BaseException:
        finish(stack_, state, code=1, keep_all=True)
        raise
    return stack_, state


def beginning(options, programs):
    """What a new stack is, by its options; and the plan and rate of its clock, if that is not the real one."""
    tenants, clock = UP_TENANTS, None
    if options.tenants:
        if options.workload:
            raise StackError("--tenants and --workload: a workload has its own tenants.")
        tenants = numbered_tenants(options.tenants)
    elif options.workload:
        plan = stack.plan(programs / "loadtest", options.workload)
        tenants, clock = plan["tenants"], (plan, options.rate or plan["rate"])
    if options.rate and clock is None:
        raise StackError("--rate needs --workload: without recorded time the clock is the real one.")
    if options.breakable and options.together:
        raise StackError("--breakable and --together: what is broken is one service at a time.")
    window_s = options.operation_window_s
    window_ms = window_s * 1000 if window_s else services.OPERATION_WINDOW_MS
    lease_ms = options.lease_s * 1000 if options.lease_s else services.LEASE_MS
    furnished = clock is None and not options.tenants
    return stack.beginning(options.cell or CELL, tenants, window_ms, furnished, options.breakable,
                           bool(options.tls), lease_ms), clock


def refuse_other(options):
    """A stack that goes on is what it was."""
    given = chosen(options, "cell", "workload", "rate", "tenants", "operation_window_s", "lease_s", "level")
    given += ["--breakable"] if options.breakable else []
    if given:
        raise StackError(f"{short(options.state)} has a stack already, which goes on as what it was. For another one, "
                         f"without its data: --fresh; beside it: --state. Given: {' '.join(given)}")


def positive(text):
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


def numbered_tenants(count):
    """Names that sort as they are counted."""
    return [f"t{number:03}" for number in range(1, count + 1)]


def is_up(state):
    """Whether a launcher holds the directory."""
    if not (state / "lock").exists():
        return False
    lock = paths.try_lock(state / "lock")
    if lock is None:
        return True
    lock.close()
    return False


def cmd_down(options):
    state = (options.state or UP_STATE).resolve()
    if not is_up(state):
        say("Nothing runs.")
        return 0
    pid = int((state / "launcher.pid").read_text(encoding="utf-8"))
    os.kill(pid, signal.SIGTERM)
    if not wait_until(lambda: not is_up(state), timeout_s=60.0):
        raise StackError(f"The launcher, process {pid}, is still stopping things after 60 s.")
    say("Stopped.")
    return 0


def cmd_status(options):
    state = (options.state or UP_STATE).resolve()
    if not is_up(state) or not (state / "stack.json").exists():
        say("Nothing runs. Start it with: make up")
        return 1
    value, supervised = stack.read(state / "stack.json"), stack.read(state / "supervisor.json")
    for name, child in supervised.items():
        service = value["services"].get(name)
        health = "" if service is None else "ready" if http_ok(f"http://{service['http']}/readyz") else "not ready"
        role = "" if service is None else services.role(service["http"])
        pid = child["pid"] or f"down ({child['last_exit']})"
        say(f"{name:<17} pid {pid!s:<10} restarts {child['restarts']:<4} {health:<9} {role}".rstrip())
    # A launcher of an earlier version writes no sizes.
    for line in (Sized.read(state), *limits.reached(state)) if (state / machine.FILE).exists() else ():
        say(line)
    return 0


def show(value, state, programs):
    """Prints addresses and commands to try."""
    stack_file, program = short(state / "stack.json"), short(programs / "apportion")
    postgres, clickhouse = value["postgres"], value["clickhouse"]
    say(f"""
NATS         {value['nats']['url']}   monitor {value['nats']['monitor_url']}
Postgres     {LOOPBACK}:{postgres['port']}   database {postgres['database']}, user {READER}
ClickHouse   {clickhouse['url']}   user {clickhouse['reader']['user']}""")
    if value.get("tls"):
        say(f"TLS          by the authority {short(Path(value['tls']['ca_file']))}")
    for name, service in value["services"].items():
        say(f"{name:<15} http://{service['http']}/metrics")
    say(f"""
Tenants: {', '.join(value['tenants'])}. Creds: {short(Path(value['nats']['creds']))}   Passwords: {stack_file}
Logs:    {short(state / 'log')}

Try:
  {program} --stack {stack_file} --help
  {program} --stack {stack_file} submit --help
  {Path(sys.executable).name} infra/local/stack.py status --state {short(state)}
  make down
""")
