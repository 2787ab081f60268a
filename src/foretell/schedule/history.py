"""What happened: who ran where and when, and when each job was done."""

from __future__ import annotations

from array import array

from foretell.schedule.pool import Share


class History:
    """Runs and ends in the order they happened, as columns that grow."""

    def __init__(self) -> None:
        self.run_job = array("q")
        self.run_start_s = array("d")
        self.run_end_s = array("d")
        self.run_first = array("q", [0])
        """Of every run, where its servers start in the next two columns; and one past the last."""
        self.server = array("q")
        self.server_devices = array("q")
        self.end_job = array("q")
        self.end_s = array("d")

    def ran(self, job: int, start_s: float, end_s: float, share: Share) -> None:
        """A job had devices from then to then."""
        self.run_job.append(job)
        self.run_start_s.append(start_s)
        self.run_end_s.append(end_s)
        for server, count in share:
            self.server.append(server)
            self.server_devices.append(count)
        self.run_first.append(len(self.server))

    def finished(self, job: int, at_s: float) -> None:
        """A job is done."""
        self.end_job.append(job)
        self.end_s.append(at_s)
