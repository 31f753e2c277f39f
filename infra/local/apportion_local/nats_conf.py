"""The configuration of the local NATS. Pure: text in, text out. Who is who stands in the file that it includes."""

import json
import os

MAX_PAYLOAD_BYTES = 8 * 1024 * 1024
MAX_PENDING_BYTES = 64 << 20
MEMORY_STORE_BYTES = 256 << 20
# Each stream has its own limit; the server's is not to be in the way of many small cells, to each of which feeds are promised.
UNLIMITED_BYTES = 1 << 40



def environment(sizes):
    """
    The server's work is one writer after the other and a disk: a second thread of Go's and a collection at each doubling of
    a small heap took a quarter of its CPU at 35,000 tasks a second. The limit holds for a large heap: a thousand connected
    tenants keep 0.35 GB, and with a limit of 768 MiB there was a collection of 0.3 to 0.5 s every four to nine seconds,
    which decisions seem to wait for (docs/benchmarks.md, Questions).
    """
    return {"GOMAXPROCS": str(sizes.threads), "GOGC": "400", "GOMEMLIMIT": f"{sizes.heap_bytes >> 20}MiB"}


def render(*, config_dir, port, monitor_port, store_dir, bus_conf, file_store_bytes=UNLIMITED_BYTES,
           memory_store_bytes=MEMORY_STORE_BYTES, shown=None):
    """
    `bus_conf`: what `apportion bus init` wrote. NATS looks for it from the configuration's directory. `shown`: the files of
    the certificate and its key, with which the server takes connections by TLS only.
    """
    certificate, key = shown or (None, None)
    tls = "" if shown is None else f"""tls: {{
  cert_file: {json.dumps(str(certificate))}
  key_file: {json.dumps(str(key))}
  timeout: 5
}}
"""
    return f"""# Written by the local stack; the next start overwrites it.
server_name: apportion-local
listen: "127.0.0.1:{port}"
http: "127.0.0.1:{monitor_port}"
max_payload: {MAX_PAYLOAD_BYTES}
max_pending: {MAX_PENDING_BYTES}
jetstream: {{
  store_dir: {json.dumps(str(store_dir))}
  # An acknowledged message is on disk. The default of two minutes loses them at a power cut.
  sync_interval: always
  max_file_store: {file_store_bytes}
  max_memory_store: {memory_store_bytes}
}}
{tls}include {json.dumps(os.path.relpath(bus_conf, config_dir))}
"""
