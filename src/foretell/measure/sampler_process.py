"""The sampling process: reads counters at a steady rate while the processes it watches work.

It is started by foretell.measure.sampler with the id of its parent, hears commands as lines of JSON
and answers with one; the answer to "stop" is followed by rows of 64-bit integers (nanoseconds of
the monotonic clock, then the counters). A process of its own, because a thread would wait whenever
the work holds the interpreter. Only light modules are imported, so that it is there at once.
"""

from __future__ import annotations

import gc
import json
import os
import queue
import signal
import sys
import threading
import time
from array import array
from typing import Any, BinaryIO

from foretell.errors import ForetellError, InputError
from foretell.measure.counters import open_counters
from foretell.measure.nvml import NvidiaCounters

_LOOK_FOR_PARENT_S = 0.5


def main() -> None:
    """Sample on command until told to end or until the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent to decide on
    gc.disable()  # nothing here makes cycles, and a collection would come at a bad time
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever libraries print is no answer
    parent = Parent(int(sys.argv[-1]))
    while True:
        try:
            sampling = Sampling(parent.command(None))
        except ForetellError as error:
            wrong_input = isinstance(error, InputError)
            _answer(answers, {"error": str(error), "input": wrong_input})
            continue
        _answer(answers, sampling.facts())
        sampling.until_told(parent)
        _answer(answers, sampling.outcome())
        answers.write(sampling.rows.tobytes())
        answers.flush()


class Parent:
    """Commands as they come; a parent that is gone ends this process wherever it waits."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._commands: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()

    def command(self, until_ns: int | None) -> dict[str, Any]:
        """The next command; {"do": "sample"} when none came in time."""
        while True:
            left_s = _LOOK_FOR_PARENT_S
            if until_ns is not None:
                left_s = min(left_s, max(0.0, (until_ns - time.monotonic_ns()) / 1e9))
            try:
                line = self._commands.get(timeout=left_s)
            except queue.Empty:
                # The pipe alone does not tell: children the parent forked hold it open.
                if sys.platform != "win32" and os.getppid() != self._pid:
                    os._exit(0)
                if until_ns is not None and time.monotonic_ns() >= until_ns:
                    return {"do": "sample"}
                continue
            command: dict[str, Any] = json.loads(line)
            if command["do"] == "end":
                os._exit(0)
            return command

    def _listen(self) -> None:
        for line in sys.stdin.buffer:
            self._commands.put(line)
        os._exit(0)


class Sampling:
    """One series while it is taken."""

    def __init__(self, job: dict[str, Any]) -> None:
        self._period_ns = int(1e9 / job["rate_hz"])
        self._nvidia = NvidiaCounters(job["devices"])
        self._counters = open_counters(job["pids"], job["interfaces"])
        self.rows = array("q")
        self._samples = 0
        self._cpu_ns = time.process_time_ns()
        self._began_ns = self._sample()

    def facts(self) -> dict[str, Any]:
        """What is needed to make sense of the rows."""
        return {
            "interfaces": self._counters.interfaces,
            "threads": self._counters.threads,
            "memory_bytes": self._counters.memory_bytes,
        }

    def outcome(self) -> dict[str, Any]:
        """How many rows there are, and what they cost."""
        cpu_s = (time.process_time_ns() - self._cpu_ns) / 1e9
        nbytes = len(self.rows) * self.rows.itemsize
        return {"samples": self._samples, "nbytes": nbytes, "cpu_s": cpu_s}

    def until_told(self, parent: Parent) -> None:
        """Sample at each tick and once more at the end."""
        now_ns = self._began_ns
        while parent.command(self._next_tick_ns(now_ns))["do"] == "sample":
            now_ns = self._sample()
        self._sample()
        self._counters.close()

    def _next_tick_ns(self, now_ns: int) -> int:
        """Ticks that were missed stay missed, and one that is about to come is left out.

        A sample right after a late one would divide what the counters gained by next to nothing.
        """
        ticks = (now_ns - self._began_ns) // self._period_ns + 1
        tick_ns = self._began_ns + ticks * self._period_ns
        return tick_ns if tick_ns - now_ns > self._period_ns // 2 else tick_ns + self._period_ns

    def _sample(self) -> int:
        now_ns = time.monotonic_ns()
        self.rows.append(now_ns)
        self.rows.extend(self._counters.read())
        self.rows.extend(self._nvidia.read())
        self._samples += 1
        return now_ns


def _answer(answers: BinaryIO, answer: dict[str, Any]) -> None:
    answers.write(json.dumps(answer).encode() + b"\n")
    answers.flush()


if __name__ == "__main__":
    main()
