"""Small processes with a known rhythm, for tests to watch."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Sequence

BUSY = """
import os, time
try:
    os.nice(-10)  # other work on the machine is not what is to be seen
except OSError:
    pass
while True:
    end = time.monotonic() + {busy_s}
    while time.monotonic() < end:
        pass
    time.sleep({idle_s})
"""

HOLDING = """
import time
while True:
    held = b"x" * {nbytes}
    time.sleep({held_s})
    del held
    time.sleep({idle_s})
"""

RECEIVING = """
import socket
server = socket.create_server(("{address}", {port}))
print(server.getsockname()[1], flush=True)
peer, _ = server.accept()
while peer.recv(1 << 20):
    pass
print("done", flush=True)
"""

SENDING = """
import socket, sys, time
peer = socket.create_connection(("{address}", {port}))
print("ready", flush=True)
sys.stdin.readline()
for _ in range({blocks}):
    peer.sendall(bytes({block_bytes}))
    time.sleep({pause_s})
peer.shutdown(socket.SHUT_WR)
print("sent", flush=True)
sys.stdin.readline()
"""


@contextlib.contextmanager
def running(code: str, before: Sequence[str] = ()) -> Iterator[subprocess.Popen[str]]:
    """A process that runs the code; ended on exit."""
    process = subprocess.Popen(
        [*before, sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def line_from(process: subprocess.Popen[str]) -> str:
    """The next line it prints."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def nudge(process: subprocess.Popen[str]) -> None:
    """Let it go on."""
    assert process.stdin is not None
    print(file=process.stdin, flush=True)
