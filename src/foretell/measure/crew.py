"""A crew: worker processes started by torchrun on one or more hosts, kept alive between tasks.

Every host runs one torchrun agent, which ends with the first of its workers that fails. Then, or
when a task takes far too long, the crew says what the task came to and starts afresh.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from foretell.errors import CannotError
from foretell.measure.folder import OWNER, Folder
from foretell.measure.namespaces import INTERFACE, HostPair, first_address, why_not
from foretell.measure.task import Answer, Task
from foretell.measure.world import World

SSH = "FORETELL_SSH"
"""Variable with the command that reaches other machines, such as 'ssh -F my.conf'."""
_SSH_FAILED = 255
_LOOK_AGAIN_S = 0.02
_MORE_THAN_ASKED = 8.0
_FAREWELL_S = 5.0
_FIRST_PORT, _PORTS = 20_000, 12_000


class Crew:
    """Workers of one World. `do` gives them one task at a time."""

    def __init__(self, world: World, patience_s: float = 60.0) -> None:
        self.world, self.patience_s = world, patience_s
        self._stack = contextlib.ExitStack()
        self._agents: list[subprocess.Popen[bytes]] = []
        self._number = 0

    def __enter__(self) -> Crew:
        where = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="foretell-crew-"))
        self.folder = Folder(Path(where))
        self._log = Path(where, "log")
        self._hosts: HostPair | None = None
        if self.world.namespaces:
            reason = why_not()
            if reason:
                self._stack.close()
                raise CannotError(
                    f"hosts={self.world.namespaces} cannot be made: {reason}; leave --hosts out to "
                    "measure over loopback"
                )
            self._hosts = self._stack.enter_context(HostPair())
            self._hosts.shape(self.world.bits_per_s)
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self.folder.stop()
        self._end(_FAREWELL_S)
        self._stack.close()

    def do(self, task: Task) -> Answer:
        """Have a task done; a crash or an endless run is an answer as well."""
        self._number += 1
        self.folder.write_task(self._number, task)
        limit_s = self.patience_s + _MORE_THAN_ASKED * task.seconds
        started = time.monotonic()
        while True:
            answer = self.folder.read_answer(self._number)
            if answer is not None:
                return answer
            if time.monotonic() - started > limit_s:
                return self._give_up(
                    Answer(outcome="timed-out", reason=f"no answer after {limit_s:.0f} s")
                )
            if any(agent.poll() is not None for agent in self._agents):
                return self._give_up(self._unreached() or self.folder.read_failure(self._number))
            time.sleep(_LOOK_AGAIN_S)

    def _give_up(self, answer: Answer) -> Answer:
        self._end(0.0)
        self.folder.write_answer(self._number, answer)
        self._start()
        return answer

    def _unreached(self) -> Answer | None:
        """Another machine that ssh did not get to, if that is what happened."""
        for host, agent in zip(self.world.hosts, self._agents[1:], strict=False):
            if agent.poll() == _SSH_FAILED:
                return Answer(outcome="crashed", reason=f"{host} cannot be reached by ssh")
        return None

    def _start(self) -> None:
        port = _free_port()
        for node in range(self.world.nodes):
            command = self._command(node, port)
            environment = {**os.environ, **self._variables()}
            with self._log.open("ab") as log:
                self._agents.append(
                    subprocess.Popen(
                        self._on_host(node, command),
                        env=environment,
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                        start_new_session=True,
                    )
                )

    def _command(self, node: int, port: int) -> list[str]:
        world = self.world
        meeting = f"{self._first_address()}:{port}"
        return [
            *(sys.executable, "-m", "torch.distributed.run"),
            *("--nnodes", str(world.nodes), "--nproc-per-node", str(world.processes)),
            *("--node-rank", str(node), "--max-restarts", "0"),
            *("--rdzv-backend", "c10d", "--rdzv-endpoint", meeting, "--rdzv-id", "foretell"),
            *("--rdzv-conf", f"is_host={int(node == 0)}", "--monitor-interval", "0.1"),
            *("--local-addr", self._address(node)),
            *("-m", "foretell.measure.worker", str(self.folder.path)),
        ]

    def _variables(self) -> dict[str, str]:
        interface = INTERFACE if self._hosts else "lo"
        chosen = {
            "OMP_NUM_THREADS": str(self.world.threads_each),
            "FORETELL_INTERFACE": interface,
            OWNER: str(os.getpid()),
            "PYTHONWARNINGS": "ignore",
            "TORCH_CPP_LOG_LEVEL": "ERROR",
        }
        if not self.world.hosts:
            chosen["GLOO_SOCKET_IFNAME"] = interface
        return chosen

    def _first_address(self) -> str:
        return self._address(0)

    def _address(self, node: int) -> str:
        if self._hosts is not None:
            return first_address(node)
        if not self.world.hosts:
            return "127.0.0.1"
        return socket.gethostname() if node == 0 else self.world.hosts[node - 1].split("@")[-1]

    def _on_host(self, node: int, command: Sequence[str]) -> list[str]:
        if self._hosts is not None:
            return self._hosts.command(node, command)
        if node == 0:
            return list(command)
        settings = [f"{name}={value}" for name, value in self._variables().items()]
        # ssh hands one text to the other machine's shell, so every word is quoted.
        there = shlex.join(["env", *settings, *command])
        ssh = shlex.split(os.environ.get(SSH) or "ssh -o BatchMode=yes")
        return [*ssh, "--", self.world.hosts[node - 1], there]

    def _end(self, patience_s: float) -> None:
        """Let the agents go home by themselves, then end them and whatever they started."""
        limit = time.monotonic() + patience_s
        for agent in self._agents:
            with contextlib.suppress(subprocess.TimeoutExpired):
                agent.wait(max(0.0, limit - time.monotonic()))
        for signal_number in (signal.SIGTERM, signal.SIGKILL):
            for agent in self._agents:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(agent.pid, signal_number)
            for agent in self._agents:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    agent.wait(_FAREWELL_S)
        self._agents = []


def _free_port() -> int:
    """A port nobody listens on, outside the range clients are given."""
    for attempt in range(_PORTS):
        port = _FIRST_PORT + (os.getpid() * 7 + attempt) % _PORTS
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise CannotError("no free port was found to start worker processes: end some programs")
