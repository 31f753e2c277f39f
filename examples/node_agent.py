"""A node's agent that runs commands, on top of the protocol in node.py: each is a subprocess, and how it ends is reported.

    .local/venv/bin/python examples/node_agent.py --name n1 --cpu 4 --memory-gib 8 --gpus 0 --gpu-model '' --join TOKEN

TOKEN is what `apportion node approve n1 --cpu 4 --memory 8GiB` prints. What a command writes goes to where this writes. It keeps
nothing on disk, so what it runs ends with it, and a process that leaves its session escapes. For real machines there is
services/node-agent, which does better in both.
"""

import asyncio
import os
import signal

import nats
import node

ANSWER_S = 2


class CommandAgent(node.Agent):
    lease = None

    def capacity(self):
        """Commands are placed only on nodes that say that they run them."""
        capacity = super().capacity()
        capacity.labels.add(name="_commands", value="process")
        return capacity

    async def beat(self, payload):
        """The answer says for how long nothing of this node is placed elsewhere. Before that is over, all has to have ended."""
        loop = asyncio.get_running_loop()
        sent = loop.time()
        try:
            answer = await self.bus.request(self.subject("heartbeat"), payload, timeout=ANSWER_S)
        except nats.errors.Error:
            return
        renewed = self.m.LeaseRenewed.FromString(answer.data)
        if renewed.boot == self.boot:
            if self.lease:
                self.lease.cancel()
            self.lease = loop.call_at(sent + renewed.lease_ms / 1000 * 3 / 4, self.lapsed)

    def lapsed(self):
        print("nobody answers: what runs is ended", flush=True)
        self.end_all()
        self.boot += 1
        self.registering = asyncio.create_task(self.register())

    async def perform(self, assignment):
        work = assignment.spec.work
        if not work.command:
            # It holds its place until it is stopped.
            return await self.tell(assignment, "STARTED", "holds its place")
        own = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        given = {variable.name: variable.value for variable in work.env}
        try:
            process = await asyncio.create_subprocess_exec(
                work.command, *work.args, env=own | given, cwd=work.working_dir or None, stdin=asyncio.subprocess.PIPE,
                start_new_session=True)
        except OSError as error:
            return await self.ended(assignment, 127, error, reason="RUN_EXIT_REASON_COULD_NOT_START")
        try:
            await self.tell(assignment, "STARTED", f"started for {assignment.tenant}: {work.command}")
            await process.communicate(work.payload)
        finally:
            # Told to stop, or its lease is over; or what it has left behind.
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        await self.ended(assignment, process.returncode, "ended")

    async def ended(self, assignment, code, words, **reason):
        self.over(assignment)
        exit_ = self.m.RunExit(code=max(code, 0), signal=max(-code, 0), **reason)
        await self.tell(assignment, "FAILED_RUN" if code else "FINISHED_OK", f"{words}, {code}", exit=exit_)


if __name__ == "__main__":
    try:
        asyncio.run(node.main(CommandAgent))
    except KeyboardInterrupt:
        pass
