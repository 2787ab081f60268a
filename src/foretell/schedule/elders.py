"""The oldest jobs, and the device-time that they may insist on."""

from __future__ import annotations

from collections.abc import Container, Iterator

from foretell.schedule.job import Job

_TURN_S = 600.0
"""For how long there must be device-time before the oldest insist on it again."""
_SOON_S = 1.0
_SAVED_S = 3600.0
"""For how long device-time that they did not need is saved."""


class Elders:
    """Who is old: those that fit a share of the devices in the order of arrival, at least one.

    They are owed that share of all device-time and all that idles, and insist while they have not
    had it. A job as large as the cluster never finds it idle as a whole, so what idles adds up.
    """

    def __init__(self, share: float) -> None:
        self._share = share
        self._others: dict[int, Job] = {}
        """In the order of arrival."""
        self._old: dict[int, Job] = {}
        self._held = 0
        """Devices that all who are old need."""
        self._running = 0
        """Those of them that they have."""
        self._idle = 0
        """Devices that nobody has."""
        self._owed_device_s = 0.0
        self._at_s = 0.0
        self._insist = False

    def __contains__(self, job: Job) -> bool:
        return job.number in self._old

    def __iter__(self) -> Iterator[Job]:
        return iter(list(self._old.values()))

    def submitted(self, job: Job) -> None:
        """A job arrives."""
        self._others[job.number] = job

    def started(self, job: Job) -> None:
        """A job was given devices."""
        if job in self:
            self._running += job.devices

    def stopped(self, job: Job) -> None:
        """A job that had devices has none any more."""
        if job in self:
            self._running -= job.devices

    def ended(self, job: Job) -> None:
        """A job without devices is done, or was withdrawn."""
        if self._old.pop(job.number, None) is None:
            del self._others[job.number]
        else:
            self._held -= job.devices

    def protects(self, job: Job) -> bool:
        """Whether nobody may stop it now."""
        return self._insist and job in self

    def advance(self, now_s: float, devices: int, running: Container[Job]) -> bool:
        """Until now, on so many devices: whether they insist. `running` jobs have devices."""
        paid = self._share * devices
        most = max(_SAVED_S * paid, _TURN_S * self._held)
        self._owed_device_s += (paid + self._idle - self._running) * (now_s - self._at_s)
        self._owed_device_s = min(self._owed_device_s, most)
        self._at_s = now_s
        self._grow(paid, running)
        if self._owed_device_s <= 0:
            self._insist = False
        elif self._owed_device_s >= _TURN_S * self._held:
            self._insist = bool(self._old)
        return self._insist

    def insist_at_s(self, devices: int, idle: int) -> float:
        """When they will again, if nothing changes and so many devices idle."""
        self._idle = idle
        gained = self._share * devices + idle - self._running
        if self._insist or not self._old or gained <= 0:
            return float("inf")
        return self._at_s + max(_SOON_S, (_TURN_S * self._held - self._owed_device_s) / gained)

    def _grow(self, paid: float, running: Container[Job]) -> None:
        while self._others and paid:
            job = next(iter(self._others.values()))
            if self._old and self._held + job.devices > paid:
                break
            del self._others[job.number]
            self._old[job.number] = job
            self._held += job.devices
            if job in running:
                self._running += job.devices
