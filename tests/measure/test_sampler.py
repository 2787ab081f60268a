"""What the sampler sees of real processes and interfaces."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np
import psutil
import pytest

from foretell.data import RESOURCES
from foretell.errors import CannotError, InputError, MissingExtraError, UnknownNameError
from foretell.measure import Series, UsageSampler, find_bursts, resources, series_bursts
from foretell.measure.counters import LinuxCounters, PortableCounters
from foretell.measure.namespaces import INTERFACE, HostPair, first_address, why_not
from tests.measure.jobs import (
    BUSY,
    HOLDING,
    RECEIVING,
    SENDING,
    line_from,
    nudge,
    running,
)

MUST_RUN = "FORETELL_REAL_RUNS"
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
MANY = 1 << 18


@pytest.fixture(scope="module")
def sampler() -> Iterator[UsageSampler]:
    with UsageSampler() as sampler:
        yield sampler


def watch(sampler: UsageSampler, pid: int, seconds: float, **options: object) -> Series:
    sampler.start([pid], **options)  # type: ignore[arg-type]
    time.sleep(seconds)
    return sampler.stop()


def total(series: Series, name: str) -> float:
    return float(series[name] @ np.diff(series.times_s, prepend=0.0))


def cpu_s(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def test_a_process_busy_every_other_time_has_bursts_of_that_length(sampler: UsageSampler) -> None:
    with running(BUSY.format(busy_s=0.3, idle_s=0.3)) as job:
        began_s = cpu_s(job.pid)
        sampler.start([job.pid], [], threads=1)
        just_after_s = cpu_s(job.pid)
        time.sleep(2.4)
        just_before_s = cpu_s(job.pid)
        series = sampler.stop()
        ended_s = cpu_s(job.pid)
    # A machine with other work takes the core away for a while, which is no idle time of the job.
    found = series_bursts(series, merge_s=0.15)["utilisation"]
    assert found.burst_count >= 3
    assert found.burst_s == pytest.approx(0.3, abs=0.1)
    assert found.idle_s == pytest.approx(0.3, abs=0.1)
    spent_s = total(series, "utilisation")
    assert just_before_s - just_after_s - 0.03 < spent_s < ended_s - began_s + 0.03
    assert found.burst_level == pytest.approx(spent_s / found.burst_count / found.burst_s, rel=0.1)
    numbers = dict(zip(RESOURCES, resources(series, merge_s=0.15), strict=True))
    assert numbers["utilisation_burst_s"] == found.burst_s


def test_memory_taken_and_given_back_shows_in_bytes(sampler: UsageSampler) -> None:
    with running(HOLDING.format(nbytes=200_000_000, held_s=0.3, idle_s=0.3)) as job:
        series = watch(sampler, job.pid, 2.6)
    swing = find_bursts(series.times_s, series["memory_bytes"])
    assert swing.burst_count >= 2
    assert np.ptp(series["memory_bytes"]) == pytest.approx(200e6, rel=0.03)
    share = series["memory_bytes"] / psutil.virtual_memory().total
    assert series["memory_share"] == pytest.approx(share, rel=0.01)


def test_bytes_between_two_hosts_are_counted(sampler: UsageSampler) -> None:
    reason = why_not()
    if reason and os.environ.get(MUST_RUN):
        pytest.fail(f"{MUST_RUN} is set, and {reason}")
    if reason:
        pytest.skip(reason)
    nbytes = 80 * MANY
    with HostPair() as hosts:
        address = first_address(1)
        receiving = RECEIVING.format(address=address, port=0)
        with running(receiving, hosts.command(1, ())) as there:
            sending = SENDING.format(
                address=address,
                port=line_from(there),
                blocks=80,
                block_bytes=MANY,
                pause_s=0.005,
            )
            with running(sending, hosts.command(0, ())) as here:
                assert line_from(here) == "ready"
                with UsageSampler() as other:
                    other.start([there.pid], [INTERFACE])
                    sampler.start([here.pid], [INTERFACE])
                    nudge(here)
                    assert line_from(there) == "done"
                    sent, received = sampler.stop(), other.stop()
    assert total(sent, "sent_bytes_per_s") == pytest.approx(nbytes, rel=0.03)
    assert total(received, "received_bytes_per_s") == pytest.approx(nbytes, rel=0.03)
    assert total(sent, f"sent_bytes_per_s/{INTERFACE}") == total(sent, "sent_bytes_per_s")
    assert total(sent, "received_bytes_per_s") < 0.03 * nbytes


@LINUX
def test_the_loopback_counts_only_when_it_is_named(sampler: UsageSampler) -> None:
    with running(RECEIVING.format(address="127.0.0.1", port=0)) as there:
        port = line_from(there)
        sending = {"address": "127.0.0.1", "blocks": 20, "block_bytes": MANY, "pause_s": 0.0}
        with running(SENDING.format(port=port, **sending)) as here:
            assert line_from(here) == "ready"
            sampler.start([here.pid], ["lo"])
            nudge(here)
            assert line_from(there) == "done"
            series = sampler.stop()
            unnamed = watch(sampler, here.pid, 0.1)
    assert total(series, "sent_bytes_per_s") > 20 * MANY
    assert not any(name.endswith("/lo") for name in unnamed.columns)


def test_a_process_that_ends_does_not_end_the_series(sampler: UsageSampler) -> None:
    with running(BUSY.format(busy_s=5, idle_s=0)) as job:
        sampler.start([os.getpid(), job.pid])
        time.sleep(0.3)
        both = time.monotonic()
        job.kill()
        job.wait()
        time.sleep(0.3)
    series = sampler.stop()
    assert series.duration_s > 0.6
    alone = series.between(both + 0.1, np.inf)
    assert alone["memory_bytes"].max() < series["memory_bytes"].max()
    assert total(alone, "utilisation") < total(series, "utilisation") / 2
    assert np.all(series["utilisation"] >= 0)


def test_work_that_holds_the_interpreter_does_not_stop_the_clock(sampler: UsageSampler) -> None:
    sampler.start([os.getpid()])
    began = time.monotonic()
    while time.monotonic() < began + 0.4:
        pow(3, 400_000)
    series = sampler.stop()
    steps_s = np.diff(series.times_s)
    assert np.median(steps_s) < 1.5 / series.asked_hz
    assert series.rate_hz > 0.6 * series.asked_hz
    assert series.sampler_cpu_s < 0.2 * series.duration_s


def test_times_grow_and_agree_with_the_clock_of_the_caller(sampler: UsageSampler) -> None:
    before = time.monotonic()
    series = watch(sampler, os.getpid(), 0.2)
    after = time.monotonic()
    assert before <= series.began_s <= series.began_s + series.duration_s <= after
    assert np.all(np.diff(series.times_s) > 0)
    assert series.duration_s >= 0.2


def test_full_utilisation_is_a_share_of_the_threads_named(sampler: UsageSampler) -> None:
    with running(BUSY.format(busy_s=60, idle_s=0)) as job:
        time.sleep(0.2)
        one = watch(sampler, job.pid, 0.4, threads=1)
        four = watch(sampler, job.pid, 0.4, threads=4)
    assert 0.2 < one["utilisation"].mean() < 1.2
    assert four["utilisation"].mean() < 0.3


def test_the_first_answer_comes_soon() -> None:
    seconds = []
    for _ in range(3):
        began = time.perf_counter()
        with UsageSampler() as fresh:
            fresh.start([os.getpid()])
            seconds.append(time.perf_counter() - began)
    assert min(seconds) < 0.5


def test_the_sampling_process_imports_nothing_heavy() -> None:
    code = (
        "import foretell.measure.sampler_process, sys; "
        "heavy = {'torch', 'numpy', 'psutil', 'pyarrow', 'rich'} & set(sys.modules); "
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


ORPHAN = """
import os, sys, time
from foretell.measure import UsageSampler
sampler = UsageSampler()
sampler.start([os.getpid()])
if {forks} and os.fork() == 0:
    time.sleep(20)
    os._exit(0)
print(sampler.pid, flush=True)
time.sleep(20)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that fork")
@pytest.mark.parametrize("forks", [False, True], ids=["alone", "with a fork that holds the pipe"])
def test_the_sampler_dies_with_its_parent(forks: bool) -> None:
    with running(ORPHAN.format(forks=forks)) as parent:
        orphan = psutil.Process(int(line_from(parent)))
        rest = [c for c in psutil.Process(parent.pid).children() if c.pid != orphan.pid]
        try:
            os.kill(parent.pid, signal.SIGKILL)
            until = time.monotonic() + 5
            while _alive(orphan) and time.monotonic() < until:
                time.sleep(0.02)
            assert not _alive(orphan)
        finally:
            for process in rest:
                process.kill()


def _alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_an_interrupt_is_left_to_the_parent(sampler: UsageSampler) -> None:
    os.kill(sampler.pid, signal.SIGINT)
    assert len(watch(sampler, os.getpid(), 0.1)) > 0


def test_wrong_input_is_told_and_the_sampler_goes_on(sampler: UsageSampler) -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    with pytest.raises(InputError, match=f"process {gone.pid} is not running"):
        sampler.start([gone.pid])
    with pytest.raises(InputError, match="unknown interface 'nowhere0'"):
        sampler.start([os.getpid()], ["nowhere0"])
    with pytest.raises(InputError, match="pids is empty"):
        sampler.start([])
    with pytest.raises(InputError, match="threads=0"):
        sampler.start([os.getpid()], threads=0)
    with pytest.raises(InputError, match="call start"):
        sampler.stop()
    sampler.start([os.getpid()])
    with pytest.raises(InputError, match="call stop"):
        sampler.start([os.getpid()])
    with pytest.raises(UnknownNameError, match="did you mean utilisation"):
        sampler.stop()["utilization"]
    with pytest.raises(InputError, match="rate_hz=5"):
        UsageSampler(rate_hz=5)


def test_devices_without_the_extra_say_what_is_missing(
    sampler: UsageSampler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'foretell\[nvidia\]'"):
        sampler.start([os.getpid()], devices=[0])
    series = watch(sampler, os.getpid(), 0.1)
    assert "gpu_utilisation" not in series.columns


def test_a_sampling_process_that_was_killed_is_named() -> None:
    with UsageSampler() as doomed:
        doomed.start([os.getpid()])
        os.kill(doomed.pid, signal.SIGKILL)
        with pytest.raises(CannotError, match="make a new UsageSampler"):
            doomed.stop()


@LINUX
def test_counters_of_linux_and_of_psutil_agree() -> None:
    counters = [LinuxCounters([os.getpid()], None), PortableCounters([os.getpid()], None)]
    precise, portable = counters
    pow(3, 400_000)
    for _ in range(5):
        (cpu_ns, resident, *traffic), (other_ns, other_resident, *others) = (
            c.read() for c in counters
        )
    assert cpu_ns == pytest.approx(other_ns, abs=60e6)
    assert resident == pytest.approx(other_resident, rel=0.02)
    assert traffic == pytest.approx(others, rel=0.1, abs=1e6)
    assert precise.interfaces == portable.interfaces
    assert (precise.threads, precise.memory_bytes) == (portable.threads, portable.memory_bytes)
    for each in counters:
        each.close()
