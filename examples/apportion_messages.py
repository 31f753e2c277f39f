"""The contract's messages and the way to the bus in plain Python: protobuf classes made from a descriptor file, without protoc.

    target/quick/apportion schema descriptors --out target/apportion.binpb
"""

import ssl

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory


class Messages:
    """`Messages(path).Request` is the class of the message `apportion.v1.Request`."""

    def __init__(self, path):
        with open(path, "rb") as file:
            files = descriptor_pb2.FileDescriptorSet.FromString(file.read()).file
        self._pool = descriptor_pool.DescriptorPool()
        for one in files:
            self._pool.Add(one)

    def __getattr__(self, name):
        return message_factory.GetMessageClass(self._pool.FindMessageTypeByName(f"apportion.v1.{name}"))


def connect(stack, **options):
    """The bus of a stack; by TLS, and to nobody but whom its authority vouches for, if it has one."""
    # Who only reads messages needs no bus.
    import nats

    authority = stack.get("tls")
    context = ssl.create_default_context(cafile=authority["ca_file"]) if authority else None
    return nats.connect(stack["nats"]["url"], tls=context, **options)


def subject(stack, *tokens):
    return ".".join(("apportion", "v1", stack["cell"]["name"]) + tokens)
