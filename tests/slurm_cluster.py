"""A private Slurm cluster on this machine: own munge, one controller, several nodes."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

TOOLS = ("munged", "slurmctld", "slurmd", "sbatch")
_CONF = """\
ClusterName=foretell
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CryptoType=crypto/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=1
DefMemPerCPU=100
ReturnToService=2
MpiDefault=none
AccountingStorageType=accounting_storage/none
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def why_not() -> str:
    """Why there can be no Slurm here; empty when there can."""
    if os.geteuid() != 0:
        return "a private Slurm needs root"
    path = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin"))
    missing = [tool for tool in TOOLS if shutil.which(tool, path=path) is None]
    return f"{', '.join(missing)} not found: install slurm-wlm and munge" if missing else ""


@contextlib.contextmanager
def slurm_cluster(folder: Path, nodes: int = 2, cores: int = 1) -> Iterator[dict[str, str]]:
    """Variables with which Slurm's commands reach the cluster."""
    folder.chmod(0o755)
    (folder / "state").mkdir()
    host = socket.gethostname().split(".")[0]
    ports = _free_ports(nodes + 1)
    lines = [
        f"NodeName=node{i} NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[i + 1]} "
        f"CPUs={cores} RealMemory=4000 Feature=kind{i} State=UNKNOWN"
        for i in range(nodes)
    ]
    conf = folder / "slurm.conf"
    conf.write_text(_CONF.format(host=host, port=ports[0], folder=folder, nodes="\n".join(lines)))
    variables = {**os.environ, "SLURM_CONF": str(conf)}
    with contextlib.ExitStack() as stack:
        stack.enter_context(_munge(folder))
        _daemon(stack, ["slurmctld", "-D", "-f", str(conf)], folder, variables)
        for i in range(nodes):
            (folder / f"spool-node{i}").mkdir()
            _daemon(stack, ["slurmd", "-D", "-N", f"node{i}", "-f", str(conf)], folder, variables)
        _wait_until_idle(nodes, variables, folder)
        yield {"SLURM_CONF": str(conf)}


@contextlib.contextmanager
def _munge(folder: Path) -> Iterator[None]:
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o400)
    command = [
        *("munged", "--foreground", "--force", f"--key-file={key}"),
        *(f"--socket={folder}/munge.socket", f"--pid-file={folder}/munge.pid"),
        *(f"--log-file={folder}/munge.log", f"--seed-file={folder}/munge.seed"),
    ]
    with contextlib.ExitStack() as stack:
        _daemon(stack, command, folder, dict(os.environ))
        limit = time.monotonic() + 10
        while not (folder / "munge.socket").exists():
            if time.monotonic() > limit:
                raise RuntimeError((folder / "log").read_text()[-2000:])
            time.sleep(0.05)
        yield


def _daemon(
    stack: contextlib.ExitStack, command: list[str], folder: Path, variables: dict[str, str]
) -> None:
    path = os.pathsep.join((variables.get("PATH", ""), "/usr/sbin"))
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            command, env={**variables, "PATH": path}, stdout=log, stderr=log, text=True
        )

    def end() -> None:
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    stack.callback(end)


def _wait_until_idle(nodes: int, variables: dict[str, str], folder: Path) -> None:
    limit = time.monotonic() + 30
    while time.monotonic() < limit:
        shown = subprocess.run(
            ["sinfo", "-h", "-N", "-o", "%T"],
            env=variables,
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        if shown.stdout.split().count("idle") == nodes:
            return
        time.sleep(0.2)
    raise RuntimeError(f"Slurm did not come up: {(folder / 'log').read_text()[-2000:]}")


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
