"""
Speaks TLS for a server that cannot: `tls_door.py PORT TARGET CERTIFICATE KEY [postgres]` takes connections on loopback and
passes on what they hold to TARGET, a port of loopback or a Unix socket. The wheel's Postgres is built without TLS, and the
engine of ClickHouse as a library listens without it; servers of their own have it built in.

A client of Postgres first asks for TLS in the clear, as Postgres' protocol has it; one that does not is refused in the
same words as by a server whose pg_hba.conf says `hostssl`.
"""

import asyncio
import contextlib
import socket
import ssl
import struct
import sys

LOOPBACK = "127.0.0.1"
CHUNK_BYTES = 65_536
# For a handshake, and for the exchange before it.
HANDSHAKE_TIMEOUT_S = 10
SSL_REQUEST, GSS_REQUEST = 80_877_103, 80_877_104


def main(port, target, certificate, key, protocol=None):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate, key)
    greeting = ask_postgres if protocol == "postgres" else None
    asyncio.run(serve(int(port), target, context, greeting))


async def serve(port, target, context, greeting):
    with socket.create_server((LOOPBACK, port), backlog=128) as listener:
        listener.setblocking(False)
        loop = asyncio.get_running_loop()
        open_ones = set()
        while True:
            client, _ = await loop.sock_accept(listener)
            client.setblocking(False)
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            task = asyncio.create_task(pass_on(client, target, context, greeting))
            open_ones.add(task)
            task.add_done_callback(open_ones.discard)


async def pass_on(client, target, context, greeting):
    """One connection, from its beginning to its end. What breaks it is the matter of its two sides."""
    with contextlib.suppress(OSError, asyncio.TimeoutError, EOFError):
        try:
            asked = greeting is None or await asyncio.wait_for(greeting(client), HANDSHAKE_TIMEOUT_S)
        except BaseException:
            client.close()
            raise
        if not asked:
            return client.close()
        # From here on the transport has the socket, and closes it when all that was written is sent.
        outside = await encrypted(client, context)
        try:
            inside = await connect(target)
        except OSError:
            outside[1].close()
            raise
        try:
            await first(pump(outside[0], inside[1]), pump(inside[0], outside[1]))
        finally:
            outside[1].close()
            inside[1].close()


async def encrypted(client, context):
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(CHUNK_BYTES, loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    transport, _ = await loop.connect_accepted_socket(
        lambda: protocol, client, ssl=context, ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S)
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


async def connect(target):
    if target.isdigit():
        return await asyncio.open_connection(LOOPBACK, int(target))
    return await asyncio.open_unix_connection(target)


async def pump(reader, writer):
    while data := await reader.read(CHUNK_BYTES):
        writer.write(data)
        await writer.drain()


async def first(*directions):
    """When one side has ended, so has the connection: TLS is not closed by halves."""
    tasks = [asyncio.ensure_future(direction) for direction in directions]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def ask_postgres(client):
    """Whether the client wants TLS; it is told that it may begin."""
    loop = asyncio.get_running_loop()
    while True:
        length, code = struct.unpack("!II", await exactly(client, 8))
        if (length, code) == (8, SSL_REQUEST):
            await loop.sock_sendall(client, b"S")
            return True
        if (length, code) != (8, GSS_REQUEST):
            await loop.sock_sendall(client, refusal())
            return False
        await loop.sock_sendall(client, b"N")


async def exactly(client, count):
    loop = asyncio.get_running_loop()
    data = b""
    while len(data) < count:
        more = await loop.sock_recv(client, count - len(data))
        if not more:
            raise EOFError
        data += more
    return data


def refusal():
    fields = {"S": "FATAL", "V": "FATAL", "C": "28000", "M": "no encryption: this server takes connections by TLS only"}
    body = b"".join(f"{name}{text}".encode() + b"\0" for name, text in fields.items()) + b"\0"
    return b"E" + struct.pack("!I", len(body) + 4) + body


if __name__ == "__main__":
    main(*sys.argv[1:])
