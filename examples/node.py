"""A node's agent in plain Python: registers one machine, keeps its lease, and lets every run take some seconds.

    .local/venv/bin/python examples/node.py --gpus 8 --gpu-model A100

With --join TOKEN, as `apportion node approve` prints it, the machine joins as a node of its own; otherwise it is one of the
local stack's simulated fleet. It shows the protocol and runs nothing. Ctrl-C ends it; the node is lost when its lease is over.
"""

import argparse
import asyncio
import base64
import json
import os
import time

import nats
import nkeys
from apportion_messages import Messages, connect, subject

HEARTBEAT_S = 5
TIMEOUT_S = 5
# A user of the bus lasts an hour.
RENEW_S = 1800


class Identity:
    """A user of the bus for this node alone. An agent that outlives its process would keep the seed on disk."""

    def __init__(self, stack, messages, options):
        self.stack, self.m, self.options = stack, messages, options
        seed = nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER)
        self.key = nkeys.from_seed(seed)
        self.jwt = b""

    async def join(self):
        creds = f"{self.stack['nats']['creds']}/join.creds"
        async with await connect(self.stack, user_credentials=creds, inbox_prefix="_INBOX.join") as nobody:
            asked = self.m.JoinRequest(node=self.options.name, token=self.options.join.encode(),
                                       public_key=self.key.public_key.decode())
            answer = await nobody.request(subject(self.stack, "join"), asked.SerializeToString(), timeout=TIMEOUT_S)
        reply = self.m.JoinReply.FromString(answer.data)
        if reply.HasField("refused"):
            raise SystemExit(f"may not join: {reply.refused}")
        self.jwt = reply.user_jwt.encode()

    async def renew(self):
        """The connection ends with the user; the client comes back by the new one."""
        while True:
            await asyncio.sleep(RENEW_S)
            await self.join()

    def connected_by(self):
        return {"user_jwt_cb": lambda: bytearray(self.jwt),
                "signature_cb": lambda nonce: base64.b64encode(self.key.sign(nonce.encode()))}


class Agent:
    def __init__(self, bus, stack, messages, options):
        self.bus, self.stack, self.m, self.options = bus, stack, messages, options
        # Grows each time the agent starts anew: the last life's runs are over.
        self.boot = now_ms()
        self.revision = 0
        self.runs = {}
        # The revision with which each run that is over was last heard of: a later one is of another run.
        self.done = {}

    async def run(self):
        await self.bus.subscribe(self.subject("assign"), cb=self.assigned)
        await self.register()
        while True:
            await self.beat(self.m.Heartbeat(boot=self.boot, revision=self.revision).SerializeToString())
            await asyncio.sleep(HEARTBEAT_S)

    async def beat(self, payload):
        await self.bus.publish(self.subject("heartbeat"), payload)

    def subject(self, what):
        return subject(self.stack, "node", self.options.name, what)

    async def report(self, **what):
        """Received once the stream has acknowledged it, and repeated until then: the inbox ignores what it knows."""
        payload = self.m.NodeReport(boot=self.boot, **what).SerializeToString()
        while True:
            try:
                ack = json.loads((await self.bus.request(self.subject("report"), payload, timeout=TIMEOUT_S)).data)
                if "error" not in ack:
                    return
                print("report refused:", ack["error"]["description"])
            except nats.errors.TimeoutError:
                print("report not acknowledged")
            await asyncio.sleep(1)

    def capacity(self):
        return self.m.NodeCapacity(cpu_milli=self.options.cpu * 1000, memory_bytes=self.options.memory_gib << 30,
                                   gpus=self.options.gpus, gpu_model=self.options.gpu_model)

    async def register(self):
        await self.report(register=self.m.Register(capacity=self.capacity()))
        print(f"{self.options.name} registered, boot {self.boot}")

    async def assigned(self, message):
        """A hint that something has changed: messages may be lost, so the whole list is asked for."""
        hint = self.m.Assignment.FromString(message.data)
        if hint.boot != self.boot:
            return
        if hint.HasField("registration_refused"):
            print("registration refused:", hint.registration_refused)
            return
        if hint.register_again:
            self.end_all()
            self.boot += 1
            await self.register()
            return
        try:
            answer = await self.bus.request(self.subject("sync"), b"", timeout=TIMEOUT_S)
        except nats.errors.TimeoutError:
            # The next heartbeat still has the old revision, and the inbox sends the hint again.
            return
        wanted = self.m.AssignmentList.FromString(answer.data)
        if wanted.boot == self.boot:
            for one in wanted.assignments:
                self.take(one)
            self.revision = max(self.revision, wanted.revision)

    def take(self, assignment):
        id_ = assignment.allocation_id
        if assignment.revision <= self.done.get(id_, 0):
            return
        if assignment.stop:
            self.over(assignment)
            if id_ in self.runs:
                self.runs.pop(id_).cancel()
            self.runs[id_] = asyncio.create_task(self.tell(assignment, "FINISHED_OK", "stopped"))
        elif id_ not in self.runs or id_ in self.done:
            self.done.pop(id_, None)
            self.runs[id_] = asyncio.create_task(self.perform(assignment))

    def over(self, assignment):
        self.done[assignment.allocation_id] = assignment.revision

    async def perform(self, assignment):
        devices = ", ".join(f"{share.milli}/1000 of device {share.device}" for share in assignment.gpus) or "no device"
        await self.tell(assignment, "STARTED", f"started for {assignment.tenant} with {devices}")
        await asyncio.sleep(self.options.run_seconds)
        self.over(assignment)
        await self.tell(assignment, "FINISHED_OK", "finished")

    async def tell(self, assignment, phase, words, **more):
        id_ = assignment.allocation_id
        print(id_, words, flush=True)
        await self.report(run=self.m.Run(allocation_id=id_, phase=phase, at_ms=now_ms(), revision=assignment.revision, **more))

    def end_all(self):
        for task in self.runs.values():
            task.cancel()
        self.runs.clear()
        self.done.clear()
        self.revision = 0


def now_ms():
    return time.time_ns() // 1_000_000


async def main(agent=Agent):
    options = parse()
    with open(options.stack, encoding="utf-8") as file:
        stack = json.load(file)
    messages = Messages(options.descriptors)
    if options.join:
        identity = Identity(stack, messages, options)
        await identity.join()
        # A task that nobody holds may be collected.
        identity.renewing = asyncio.create_task(identity.renew())
        by = identity.connected_by()
    else:
        by = {"user_credentials": f"{stack['nats']['creds']}/fleet.creds"}
    # A node hears no other inbox than its own.
    bus = await connect(stack, inbox_prefix=f"_INBOX.{options.name}", **by)
    await agent(bus, stack, messages, options).run()


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--stack", default=".local/up/stack.json")
    parser.add_argument("--descriptors", default="target/apportion.binpb")
    parser.add_argument("--name", default="node-1")
    parser.add_argument("--join", metavar="TOKEN", help="without it, it is one of the stack's simulated fleet")
    parser.add_argument("--cpu", type=int, default=64, help="cores")
    parser.add_argument("--memory-gib", type=int, default=256)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--gpu-model", default="A100")
    parser.add_argument("--run-seconds", type=float, default=20)
    return parser.parse_args()


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except KeyboardInterrupt:
        pass
