"""What a stack must know of its past to go on with its data: passwords, ports, what the data belongs to, what is done."""

import json
import secrets

from . import net, paths
from .paths import StackError

FILE = "kept.json"


def password():
    # Hexadecimal needs no quoting anywhere it goes: URLs, SQL, XML, TOML.
    return secrets.token_hex(16)


class Kept:
    """Written before what it says is used, so that a kill at any moment leaves nothing that nobody has the key to."""

    def __init__(self, state):
        self.path = state.path / FILE
        self.lasting = state.lasting
        self.value = {"passwords": {}, "ports": {}, "done": [], "stack": None}
        if self.path.exists():
            try:
                self.value = json.loads(self.path.read_text(encoding="utf-8"))
            except ValueError:
                raise StackError(f"{self.path} is broken. To begin anew without its data: make up FRESH=1") from None

    def stack(self):
        """What the data belongs to: cell, tenants, clock."""
        return self.value["stack"]

    def begin(self, stack):
        self.value["stack"] = stack
        self._write()

    def passwords(self, server, names):
        """One for each name, the same as ever."""
        known = self.value["passwords"].setdefault(server, {})
        for name in names:
            known.setdefault(name, password())
        self._write()
        return {name: known[name] for name in names}

    def port(self, name):
        """The port that it had, if nobody has taken it."""
        had = self.value["ports"].get(name)
        port = had if had is not None and net.take(had) else net.free_port()
        self.value["ports"][name] = port
        self._write()
        return port

    def clock(self, value):
        self.value["stack"]["clock"] = value
        self._write()

    def tls(self, value):
        self.value["stack"]["tls"] = value
        self._write()

    def is_done(self, step):
        return step in self.value["done"]

    def done(self, step):
        if not self.is_done(step):
            self.value["done"].append(step)
            self._write()

    def undo(self, step):
        if self.is_done(step):
            self.value["done"].remove(step)
            self._write()

    def _write(self):
        if self.lasting:
            paths.write_json(self.path, self.value, durable=True)
