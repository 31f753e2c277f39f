"""Whose servers these are: `apportion tls init` makes the stack's own authority, and what each server shows."""

from urllib.parse import quote

from . import apportion

SERVERS = ("nats", "postgres", "clickhouse", "otlp")


def init(program, directory, hosts=()):
    """Makes what is missing in the directory, or ends soon. A second time it changes nothing."""
    named = [word for host in hosts for word in ("--host", host)]
    apportion.run(program, "tls", "init", "--dir", str(directory), *named)


def ca(directory):
    return directory / "ca.pem"


def certificate(directory, server):
    return directory / f"{server}.pem"


def key(directory, server):
    return directory / f"{server}.key"


def postgres_url(url, ca_file):
    """The URL of who connects by TLS to this authority's server or not at all, as libpq and sqlx read it."""
    return f"{url}?sslmode=verify-full&sslrootcert={quote(str(ca_file), safe='/')}"
