"""Two hosts joined by ssh: a real sshd on a port of this machine."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from foretell.measure.crew import SSH, Crew
from foretell.measure.task import Task
from foretell.measure.world import World

SSHD = shutil.which("sshd", path=os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin")))


@pytest.fixture
def ssh(tmp_path: Path) -> Iterator[str]:
    reason = "" if SSHD and os.geteuid() == 0 else "needs root and sshd: install openssh-server"
    if reason and os.environ.get("FORETELL_REAL_RUNS"):
        pytest.fail(f"FORETELL_REAL_RUNS is set, and this {reason}")
    if reason:
        pytest.skip(reason)
    tmp_path.chmod(0o755)
    for name in ("host", "user"):
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / name)], check=True
        )
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config = tmp_path / "sshd.conf"
    config.write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {tmp_path}/host\nStrictModes no\n"
        f"AuthorizedKeysFile {tmp_path}/user.pub\nPasswordAuthentication no\nUsePAM no\n"
        f"PermitRootLogin yes\nPidFile {tmp_path}/pid\n"
    )
    Path("/run/sshd").mkdir(exist_ok=True)
    server = subprocess.Popen([str(SSHD), "-D", "-e", "-f", str(config)], stderr=subprocess.PIPE)
    for _ in range(100):
        with socket.socket() as client:
            if client.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.05)
    options = (
        f"-p {port} -i {tmp_path}/user -o BatchMode=yes -o StrictHostKeyChecking=no "
        f"-o UserKnownHostsFile={tmp_path}/known -o LogLevel=ERROR"
    )
    yield f"ssh {options}"
    server.terminate()
    server.communicate()


def test_a_workload_runs_on_this_machine_and_one_that_ssh_reaches(
    ssh: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SSH, ssh)
    world = World(processes=1, threads=1, hosts=("127.0.0.1",))
    with Crew(world) as crew:
        options = {"model": "op:linear,in=64,out=64", "batch": 4}
        answer = crew.do(Task(options=options, seconds=0.2))
    assert answer.outcome == "ok", answer.reason
    assert len(answer.step_s) >= 3


def test_a_machine_that_cannot_be_reached_is_an_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SSH, "ssh -o BatchMode=yes -o ConnectTimeout=1 -p 1")
    if shutil.which("ssh") is None:
        pytest.skip("ssh is not installed")
    with Crew(World(processes=1, threads=1, hosts=("127.0.0.1",)), patience_s=15) as crew:
        answer = crew.do(Task(options={"model": "op:relu,width=8", "batch": 1}, seconds=0.1))
    assert (answer.outcome, answer.reason) == ("crashed", "127.0.0.1 cannot be reached by ssh")
