"""Small traces, pools and shapes for tests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st

from foretell.schedule.history import History
from foretell.schedule.job import Policy
from foretell.schedule.pace import Wires
from foretell.schedule.placement import Placement
from foretell.schedule.pool import PoolSpec
from foretell.schedule.shape import Flow, Shape, Stage, data_parallel
from foretell.schedule.simulator import Rules, Simulation
from foretell.schedule.sizes import Oracle
from foretell.schedule.trace import Trace

WIRES = Wires(inside_bytes_per_s=100e9, port_bytes_per_s=10e9)
ALONE = data_parallel(1, compute_s=1.0, parameter_bytes=0.0)


def pool(servers: int, devices_per_server: int) -> PoolSpec:
    return PoolSpec(
        device="a100-80gb",
        first_server=0,
        servers=servers,
        devices_per_server=devices_per_server,
        wires=WIRES,
    )


def trace_of(jobs: Sequence[tuple[float, int, float]], parameter_bytes: float = 0.0) -> Trace:
    """(arrival, devices, seconds on the fewest servers) of data parallel jobs."""
    sizes = sorted({devices for _, devices, _ in jobs})
    shapes = tuple(data_parallel(n, compute_s=1.0, parameter_bytes=parameter_bytes) for n in sizes)
    return Trace(
        ids=[str(i) for i in range(len(jobs))],
        arrival_s=np.array([a for a, _, _ in jobs], dtype=np.float64),
        iterations=np.array([s for _, _, s in jobs], dtype=np.float64),
        shapes=shapes,
        shape=np.array([sizes.index(n) for _, n, _ in jobs], dtype=np.int64),
    )


def play(
    trace: Trace,
    pools: Sequence[PoolSpec],
    policy: Policy,
    rules: Rules | None = None,
    way: str = "heavy-edge",
) -> History:
    """Under a policy that knows how long jobs are."""
    placement = Placement(trace.shapes, pools, way)
    least_s = np.array([placement.least_s(i) for i in range(len(trace.shapes))])
    sizes = Oracle(trace.iterations * least_s[trace.shape])
    return Simulation(trace, pools, policy, sizes, placement, rules or Rules()).play()


def ends_of(history: History) -> list[float]:
    """When each job was done."""
    found = dict(zip(history.end_job, history.end_s, strict=True))
    return [found[i] for i in range(len(found))]


@st.composite
def shapes(draw: st.DrawFn, most_devices: int = 8) -> Shape:
    """Stages in a row with gradients and activations of any size."""
    counts = draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))
    while sum(counts) > most_devices:
        counts.pop()
    megabytes = st.integers(0, 2000).map(lambda m: m * 1e6)
    stages = tuple(Stage(n, draw(st.floats(0.01, 1.0)), draw(megabytes)) for n in counts)
    flows = tuple(Flow(i, i + 1, draw(megabytes)) for i in range(len(counts) - 1))
    return Shape(stages, flows)


@st.composite
def traces(draw: st.DrawFn, most_devices: int = 8, most_jobs: int = 12) -> Trace:
    """A few jobs of a few shapes."""
    kinds = draw(st.lists(shapes(most_devices), min_size=1, max_size=3))
    count = draw(st.integers(1, most_jobs))
    gaps = draw(st.lists(st.integers(0, 40), min_size=count, max_size=count))
    lengths = draw(st.lists(st.integers(1, 200), min_size=count, max_size=count))
    which = draw(st.lists(st.integers(0, len(kinds) - 1), min_size=count, max_size=count))
    return Trace(
        ids=[str(i) for i in range(count)],
        arrival_s=np.cumsum(gaps).astype(np.float64),
        iterations=np.array(lengths, dtype=np.float64),
        shapes=tuple(kinds),
        shape=np.array(which, dtype=np.int64),
    )
