"""The contract's messages in plain Python: protobuf classes made from a descriptor file, without protoc.

    target/release/apportion schema descriptors --out target/apportion.binpb
"""

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


def subject(stack, *tokens):
    return ".".join(("apportion", "v1", stack["cell"]["name"]) + tokens)
