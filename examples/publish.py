"""Asks for an allocation in plain Python, waits for the outcome, and shows the tenant's events.

    .local/venv/bin/python examples/publish.py --tenant team-a --gpus 1
"""

import argparse
import asyncio
import json
import uuid

import nats
from apportion_messages import Messages, connect, subject

ACK_TIMEOUT_S = 5
OUTCOME_TIMEOUT_S = 10


async def main():
    options = parse()
    with open(options.stack, encoding="utf-8") as file:
        stack = json.load(file)
    m = Messages(options.descriptors)
    bus = await connect(stack, user_credentials=f"{stack['nats']['creds']}/tenant-{options.tenant}.creds")

    # Written down before it is sent: the same operation id with the same content is the same operation, however often
    # it is sent.
    operation_id = options.operation_id or uuid.uuid4().hex
    request = m.Request(operation_id=operation_id, submit=m.Submit(
        job_set="examples", name="from-python", cpu_milli=options.cpu * 1000, memory_bytes=options.memory_gib << 30,
        gpu_count=options.gpus))
    print(f"operation   {operation_id}")

    # Listen before asking.
    token = uuid.uuid4().hex
    reply = await bus.subscribe(subject(stack, "reply", options.tenant, token), max_msgs=1)

    # A JetStream publish is a request; its answer says that the message is on disk. Nothing is received before that.
    answer = await bus.request(subject(stack, "ingress", options.tenant), request.SerializeToString(),
                               timeout=ACK_TIMEOUT_S, headers={"Apportion-Reply": token})
    ack = json.loads(answer.data)
    if "error" in ack:
        raise SystemExit(f"not received: {ack['error']['description']}")
    print(f"received    stream {ack['stream']}, message {ack['seq']}")

    try:
        # One request was sent, so there is one outcome in it.
        for outcome in m.Outcomes.FromString((await reply.next_msg(timeout=OUTCOME_TIMEOUT_S)).data).outcomes:
            print(f"outcome     {one_line(outcome)}")
    except nats.errors.TimeoutError:
        print(f"indefinite: run this again with --operation-id {operation_id}")

    # What the tenant has been told so far; resume after the last position.
    query = m.FeedQuery(job_set="examples")
    page = await bus.request(subject(stack, "query", options.tenant, "feed"), query.SerializeToString(), timeout=5)
    for event in m.FeedPage.FromString(page.data).events:
        print(f"event       {one_line(event)}")
    await bus.close()


def one_line(message):
    return " ".join(str(message).split())


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--stack", default=".local/up/stack.json")
    parser.add_argument("--descriptors", default="target/apportion.binpb")
    parser.add_argument("--tenant", default="team-a")
    parser.add_argument("--cpu", type=int, default=4, help="cores")
    parser.add_argument("--memory-gib", type=int, default=8)
    parser.add_argument("--gpus", type=int, default=0)
    parser.add_argument("--operation-id", help="to repeat an operation")
    return parser.parse_args()


if __name__ == "__main__":
    asyncio.run(main())
