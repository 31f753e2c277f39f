"""
Puts the chart library of `apportion report --html` into .local/page, once. The build of the command line embeds it. It
is Chart.js, which draws stacked bars by itself and is one file.

npm fetches it from the registry that it is set to, and checks it against the digests of the lock file beside
infra/local/page/package.json. Nothing else needs npm, so that a machine without it is set up nevertheless, and its
`apportion` refuses to draw pages.
"""

import hashlib
import shutil
import subprocess

from . import paths

FILES = ("package.json", "package-lock.json")
SOURCE = paths.CHECKOUT / "infra" / "local" / "page"
TARGET = paths.LOCAL / "page"
STAMP = "apportion-stamp"
# Its installation scripts do not run.
COMMAND = ("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=error")


def setup(say=print):
    """Idempotent; needs no network when the stamp says that the same lock file is in place."""
    paths.make_dir(paths.LOCAL, 0o755)
    with paths.locked(paths.LOCAL / "setup.lock"):
        want = hashlib.sha256(b"".join((SOURCE / name).read_bytes() for name in FILES)).hexdigest() + "\n"
        if current() == want:
            return
        why = install()
        if why is None:
            paths.write_private(TARGET / STAMP, want)
        else:
            say(f"Without the chart library of `apportion report --html`: {why}. All else works without it.")


def current():
    try:
        return (TARGET / STAMP).read_text(encoding="utf-8")
    except OSError:
        return None


def install():
    """What went wrong, or None."""
    if shutil.which(COMMAND[0]) is None:
        return "there is no npm (Debian, Ubuntu: apt install npm; Fedora: dnf install nodejs-npm)"
    paths.remove(TARGET)
    paths.make_dir(TARGET, 0o755)
    for name in FILES:
        shutil.copyfile(SOURCE / name, TARGET / name)
    done = subprocess.run(COMMAND, cwd=TARGET, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    if done.returncode == 0:
        return None
    paths.remove(TARGET)
    return "npm could not install it; its message is above"
