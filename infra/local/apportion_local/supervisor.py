"""
Keeps processes running: starts, watches, restarts and stops them.

One thread does everything. The kernel ends a child when the thread that started it ends (PR_SET_PDEATHSIG), so that no
child outlives a launcher that was killed; that thread must therefore be the main one.
"""

import contextlib
import ctypes
import os
import selectors
import signal
import socket
import subprocess
import time
from dataclasses import dataclass, field

from . import paths
from .net import wait_until
from .paths import StackError

BACKOFF_FIRST_S = 0.1
BACKOFF_MAX_S = 2.0
# A process that ran this long was healthy: its next restart starts from the first backoff again.
HEALTHY_AFTER_S = 10.0
LOG_TAIL_LINES = 20
# How often a process that runs is asked whether it is to be restarted, and the longest that it is left alone afterwards.
LOOK_EVERY_S = 1.0
MEND_BACKOFF_MAX_S = 60.0
PR_SET_PDEATHSIG = 1
# What the control socket takes, each with the name of a process.
COMMANDS = ("stop", "start", "kill", "pause", "resume", "fill", "free")

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass
class Spec:
    """How to run one process."""

    name: str
    argv: list
    ready: callable
    cwd: str = "/"
    env: dict = field(default_factory=dict)
    # Whether it sees the launcher's environment as well.
    inherits_env: bool = True
    user: tuple = None
    stop_signal: int = signal.SIGTERM
    # The process ends when its standard input does; then no signal is needed.
    stop_by_stdin: bool = False
    stop_grace_s: float = 10.0
    ready_timeout_s: float = 30.0
    death_signal: int = signal.SIGKILL
    # How much it gives way to the others, as `nice` counts.
    nice: int = 0
    # Its file system, which can be filled; see breakable.py.
    disk: object = None
    # Done before each start, such as writing a configuration that depends on the machine.
    prepare: callable = lambda: None
    # Why it is to be restarted although it runs, or None. Answers at once.
    why_restart: callable = None
    advice: str = ""


class Child:
    """A Spec with its current process and its history."""

    def __init__(self, spec):
        self.spec = spec
        self.process = None
        self.wanted = False
        self.restarts = 0
        self.backoff_s = BACKOFF_FIRST_S
        self.started_at = 0.0
        self.restart_at = None
        self.last_exit = None
        self.look_at = 0.0
        self.mend_backoff_s = LOOK_EVERY_S

    def running(self):
        return self.process is not None and self.process.poll() is None


class Supervisor:
    def __init__(self, state, on_change=lambda: None, diagnose=lambda: []):
        """`diagnose`: returns lines that explain why a process of the stack may not have started."""
        self.state = state
        self.diagnose = diagnose
        self.children = {}
        self.on_change = on_change
        self.selector = selectors.DefaultSelector()
        self.control = None
        # Whether supervisor.json is out of date.
        self.unwritten = False
        self._wake_on_child_exit()

    # Starting.

    def start(self, spec):
        """Starts a process for the first time and waits until it is ready."""
        self.launch(spec)
        self.await_ready(spec.name)

    def launch(self, spec):
        """Starts a process without waiting."""
        child = self.children[spec.name] = Child(spec)
        child.wanted = True
        self._spawn(child)

    def await_ready(self, name):
        """Waits for a process that was just launched; one that ends instead is an error that quotes its log."""
        child = self.children[name]
        wait_until(lambda: not child.running() or child.spec.ready(), child.spec.ready_timeout_s)
        if child.running() and child.spec.ready():
            return
        if child.running():
            what = f"was not ready after {child.spec.ready_timeout_s:.0f} s"
        else:
            what = f"ended at once with {describe_exit(child.process.returncode)}"
        child.wanted = False
        self._stop(child)
        advice = [child.spec.advice] if child.spec.advice else []
        raise StartError(name, what, self.state.log(name), [*advice, *self.diagnose()])

    def _spawn(self, child):
        spec = child.spec
        spec.prepare()
        with open(self.state.log(spec.name), "ab", opener=private_opener) as log:
            child.process = subprocess.Popen(
                spec.argv,
                cwd=spec.cwd,
                env={**(os.environ if spec.inherits_env else {}), **spec.env},
                stdin=subprocess.PIPE if spec.stop_by_stdin else subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Its own session: Ctrl-C in the terminal is for the launcher, which stops things in order.
                start_new_session=True,
                preexec_fn=child_setup(os.getpid(), spec.user, spec.death_signal, spec.nice),
            )
        child.started_at = time.monotonic()
        child.restart_at = None
        self._changed()

    # Watching.

    def poll(self, timeout_s):
        """Waits for a command, an exit, a due restart or a due look, and deals with it."""
        due = [child.restart_at for child in self.children.values() if child.restart_at is not None]
        due += [child.look_at for child in self.children.values() if self._is_looked_at(child)]
        if self.unwritten:
            due.append(time.monotonic() + LOOK_EVERY_S)
        if due:
            timeout_s = max(0.0, min(timeout_s, min(due) - time.monotonic()))
        for key, _ in self.selector.select(timeout_s):
            key.data()
        for child in self.children.values():
            self._restart_if_due(child)
            self._mend_if_due(child)
        if self.unwritten:
            self._changed()

    def _is_looked_at(self, child):
        return child.spec.why_restart is not None and child.wanted and child.running()

    def _mend_if_due(self, child):
        """Restarts what runs and does not work; each time it is then left alone for twice as long, until it has been healthy."""
        now = time.monotonic()
        if not self._is_looked_at(child) or now < child.look_at:
            return
        child.look_at = now + LOOK_EVERY_S
        why = child.spec.why_restart()
        if why is None:
            return
        if now - child.started_at > child.mend_backoff_s + HEALTHY_AFTER_S:
            child.mend_backoff_s = LOOK_EVERY_S
        self._stop(child)
        child.restarts += 1
        child.last_exit = f"restarted by the launcher: {why}"
        self._respawn(child)
        self._note(child, child.last_exit)
        child.look_at = time.monotonic() + child.mend_backoff_s
        child.mend_backoff_s = min(child.mend_backoff_s * 2, MEND_BACKOFF_MAX_S)

    def _note(self, child, line):
        """Into the process' own log, where whoever looks for its restart looks first."""
        with contextlib.suppress(OSError):
            with open(self.state.log(child.spec.name), "a", encoding="utf-8", opener=private_opener) as log:
                log.write(f"{time.strftime('%Y/%m/%d %H:%M:%S')} {line}\n")

    def _restart_if_due(self, child):
        if not child.wanted:
            return
        now = time.monotonic()
        if child.restart_at is None:
            if child.running():
                return
            child.last_exit = describe_exit(child.process.returncode)
            if now - child.started_at > HEALTHY_AFTER_S:
                child.backoff_s = BACKOFF_FIRST_S
            child.restart_at = now + child.backoff_s
            child.backoff_s = min(child.backoff_s * 2, BACKOFF_MAX_S)
            self._changed()
        elif now >= child.restart_at:
            child.restarts += 1
            self._respawn(child)

    def _respawn(self, child):
        """A disk that is full does not end the launcher, and with it all that runs."""
        try:
            self._spawn(child)
        except OSError:
            child.restart_at = time.monotonic() + BACKOFF_MAX_S

    def _changed(self):
        """What cannot be written now, as the disk is full, is written later."""
        try:
            self._write()
            self.unwritten = False
        except OSError:
            self.unwritten = True

    def _write(self):
        value = {}
        for name, child in self.children.items():
            value[name] = {
                "pid": child.process.pid if child.running() else None,
                "restarts": child.restarts,
                "last_exit": child.last_exit,
            }
            if child.running():
                paths.write_private(self.state.path / "pids" / f"{name}.pid", f"{child.process.pid}\n")
        paths.write_json(self.state.path / "supervisor.json", value)
        self.on_change()

    def pids(self):
        return {name: child.process.pid for name, child in self.children.items() if child.running()}

    def _wake_on_child_exit(self):
        """SIGCHLD becomes a byte on a socket that poll() waits for."""
        reader, writer = socket.socketpair()
        reader.setblocking(False)
        writer.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        self._wakeup = (reader, writer)
        self.selector.register(reader, selectors.EVENT_READ, lambda: drain(reader))

    # Stopping.

    def stop_all(self, groups):
        """Stops groups of processes one group after the other; within one, all at once."""
        for group in groups:
            children = [self.children[name] for name in group if name in self.children]
            for child in children:
                child.wanted = False
                self._ask_to_stop(child)
            for child in children:
                self._await_exit(child)
        self._changed()

    def close(self):
        """Gives back the signal hook, the sockets and the pipes. After stop_all."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for key in list(self.selector.get_map().values()):
            key.fileobj.close()
        self._wakeup[1].close()
        self.selector.close()

    def _stop(self, child):
        self._ask_to_stop(child)
        self._await_exit(child)
        self._changed()

    def _ask_to_stop(self, child):
        child.restart_at = None
        if child.process is None:
            return
        if child.spec.stop_by_stdin:
            if not child.process.stdin.closed:
                child.process.stdin.close()
        elif child.running():
            child.process.send_signal(child.spec.stop_signal)
        child.asked_at = time.monotonic()

    def _await_exit(self, child):
        if child.process is None:
            return
        left_s = child.spec.stop_grace_s - (time.monotonic() - child.asked_at)
        try:
            child.process.wait(timeout=max(0.0, left_s))
        except subprocess.TimeoutExpired:
            kill_group(child.process)
            child.process.wait()
        child.last_exit = describe_exit(child.process.returncode)

    # The control socket: one command per line, one answer per line.

    def listen(self, path):
        self.control = socket.socket(socket.AF_UNIX)
        self.control.bind(str(path))
        os.chmod(path, 0o600)
        self.control.listen()
        self.control.setblocking(False)
        self.selector.register(self.control, selectors.EVENT_READ, self._accept)

    def _accept(self):
        connection, _ = self.control.accept()
        connection.setblocking(False)
        received = bytearray()
        self.selector.register(connection, selectors.EVENT_READ, lambda: self._receive(connection, received))

    def _receive(self, connection, received):
        try:
            data = connection.recv(4096)
        except OSError:
            data = b""
        received += data
        if not data or len(received) > 65_536:
            self.selector.unregister(connection)
            connection.close()
            return
        while b"\n" in received:
            line, _, rest = bytes(received).partition(b"\n")
            received[:] = rest
            answer = self.command(line.decode("utf-8", "replace").strip())
            try:
                connection.sendall(answer.encode() + b"\n")
            except OSError:
                pass

    def command(self, line):
        """Does one control command and says how it went."""
        verb, _, name = line.partition(" ")
        child = self.children.get(name)
        if verb not in COMMANDS:
            return f"error: unknown command {verb!r}; there are: {', '.join(COMMANDS)}"
        if child is None:
            return f"error: no process {name!r}; there are: {', '.join(self.children)}"
        try:
            return getattr(self, f"_command_{verb}")(child)
        except (StackError, OSError) as error:
            return "error: " + str(error).splitlines()[0]

    def _command_stop(self, child):
        child.wanted = False
        self._stop(child)
        return "ok"

    def _command_start(self, child):
        if child.wanted and child.running():
            return "ok"
        child.wanted = True
        self._spawn(child)
        self.await_ready(child.spec.name)
        return "ok"

    def _command_kill(self, child):
        if not child.running():
            return f"error: {child.spec.name} does not run"
        kill_group(child.process)
        child.process.wait()
        self._restart_if_due(child)
        return "ok"

    def _command_pause(self, child):
        return self._signal(child, signal.SIGSTOP)

    def _command_resume(self, child):
        return self._signal(child, signal.SIGCONT)

    def _signal(self, child, number):
        if not child.running():
            return f"error: {child.spec.name} does not run"
        child.process.send_signal(number)
        return "ok"

    def _command_fill(self, child):
        return self._with_disk(child, lambda disk: disk.fill())

    def _command_free(self, child):
        return self._with_disk(child, lambda disk: disk.free())

    def _with_disk(self, child, change):
        if child.spec.disk is None:
            return f"error: {child.spec.name} has no file system of its own"
        change(child.spec.disk)
        return "ok"


class StartError(StackError):
    """A process that did not start: the event, the end of its log, and advice, a line each."""

    def __init__(self, name, what, log, advice):
        self.name = name
        self.tail = tail(log)
        self.address_in_use = "in use" in self.tail.lower()
        text = f"{name} {what}."
        if self.tail:
            text += f" The end of its log:\n\n{self.tail}\n"
        text += f"\nThe whole log: {log}"
        super().__init__("\n".join([text, *advice]))


def child_setup(launcher_pid, user, death_signal, nice=0):
    """Runs in the child before the program: drop rights first, because that resets the death signal."""

    def setup():
        os.nice(nice)
        if user is not None:
            os.setgroups([])
            os.setgid(user[1])
            os.setuid(user[0])
        _libc.prctl(PR_SET_PDEATHSIG, death_signal, 0, 0, 0)
        if os.getppid() != launcher_pid:
            os._exit(1)

    return setup


def kill_group(process):
    """Each child leads its own session, so its group is its own."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def private_opener(path, flags):
    return os.open(path, flags, 0o600)


def drain(reader):
    try:
        while reader.recv(4096):
            pass
    except BlockingIOError:
        pass


def describe_exit(code):
    if code is None:
        return "no exit"
    if code < 0:
        return f"signal {signal.Signals(-code).name}"
    return f"exit code {code}"


def tail(log):
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    return "\n".join("    " + line for line in lines[-LOG_TAIL_LINES:])
