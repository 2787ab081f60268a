"""The distributed step: from operator times to when each rank is done."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretell.comm import Collective, Constants
from foretell.graph.graph import Bools, Floats, Ints
from foretell.graph.ops import Phase
from foretell.parallel.exchange import gradient_exchange, with_gathers
from foretell.parallel.finish import step_end_s
from foretell.parallel.place import Placed
from foretell.parallel.schedule import Pipelined, StageTimes, run_schedule
from foretell.parallel.streams import Overlap
from foretell.parallel.times import OpTimes
from foretell.parallel.traffic import crossing_bytes, traffic_of
from foretell.parallel.work import Work


@dataclass(frozen=True, kw_only=True)
class StepRun:
    """One step of a job."""

    step_s: float
    op_s: Floats
    """Seconds of every operator of the step as it runs, waiting for the host included."""
    op_rank: Ints
    """Pipeline rank that runs each of them."""
    slowest: int
    """The pipeline rank that is done last."""
    phase_s: dict[str, float]
    """Seconds of the slowest rank by phase; they sum to step_s."""
    sent_bytes: dict[str, float]
    """Bytes a device sends per step, by axis."""
    network_bytes: float
    """The part of it that leaves the node, per device."""
    compute_busy_s: float
    communication_busy_s: float
    host_stretch: float
    """How much longer the slowest rank takes because its host launches operators slowly."""
    host_share: float
    """Time to launch the slowest rank's operators, as a share of the time they take."""
    message_s: Floats
    """Seconds of each message inside a pass."""
    pipeline: Pipelined
    tails: tuple[Overlap, ...] = ()
    """Gradient exchange beside the last backward pass of each rank."""


def run_step(placed: Placed, times: OpTimes, constants: Constants | None = None) -> StepRun:
    """Play the step of every distinct rank; `constants` of collectives other than the shipped."""
    work = Work(placed, times, constants)
    ranks = range(work.layout.pp)
    stages, gathers_s = _stages(work)
    pipeline = run_schedule(
        work.recipe.schedule,
        stages,
        work.layout.pp,
        work.micro,
        asked_for=work.device.vendor == "cpu",
    )
    tails = [gradient_exchange(work, work.on_rank(r)) for r in ranks]
    after = [step_end_s(work, work.on_rank(r)) for r in ranks]
    # Gradients that are kept sharded are reduced after every pass, others after the last.
    times_reduced = work.micro if work.recipe.zero == 2 else 1
    ends = [pipeline.end_s[r] + times_reduced * tails[r].exposed_s + sum(after[r]) for r in ranks]
    slowest = int(np.argmax(ends))
    mine = work.on_rank(slowest)[work.units.op]
    traffic = traffic_of(work)
    messages_s = float(work.message_s[mine[placed.messages.op]].sum())
    return StepRun(
        step_s=float(ends[slowest]) + times.loop_s,
        op_s=np.concatenate([work.op_s, work.optimizer_op_s]),
        op_rank=work.op_rank,
        slowest=slowest,
        phase_s=_phases(
            work,
            mine,
            pipeline,
            slowest,
            times_reduced * tails[slowest].exposed_s + after[slowest][1],
            after[slowest][0],
        ),
        sent_bytes=traffic.by_axis,
        network_bytes=traffic.network_bytes,
        compute_busy_s=float(work.micro * work.op_s[mine].sum() + after[slowest][0]),
        communication_busy_s=work.micro * (messages_s + gathers_s)
        + times_reduced * tails[slowest].communication_s
        + after[slowest][1],
        host_stretch=work.stretches[slowest],
        host_share=work.host_shares[slowest],
        message_s=work.message_s,
        pipeline=pipeline,
        tails=tuple(tails),
    )


def _stages(work: Work) -> tuple[list[StageTimes], float]:
    """Times of every model chunk, and how long its gathers and scatters are on the links."""
    total_s = work.total_s
    forward = work.units.sums(total_s, work.forward)
    backward = work.units.sums(total_s, work.backward)
    weights = work.units.sums(total_s, _weight_gradients(work))
    forward, backward, gathers_s = with_gathers(work, forward, backward)
    sends = _send_times(work)
    stage_of_unit = work.placed.stage_of_unit

    def total(values: Floats, chunk: int) -> float:
        return float(values[stage_of_unit == chunk].sum())

    stages = [
        StageTimes(
            forward_s=total(forward, c),
            backward_s=total(backward, c),
            weights_s=total(weights, c),
            send_s=send_s,
        )
        for c, send_s in enumerate(sends)
    ]
    return stages, gathers_s


def _weight_gradients(work: Work) -> Bools:
    kinds = work.graph.kinds
    makes = (kinds.gemm[:, 3] > 0) & (kinds.gemm_power[:, 3] > 0)
    result: Bools = (work.graph.op_phase == Phase.BACKWARD) & makes[work.graph.op_kind]
    return result


def _send_times(work: Work) -> list[float]:
    """Seconds of what each chunk sends to the next."""
    stride, pp = work.layout.stage_stride, work.layout.pp
    if pp == 1:
        return [0.0]
    return [
        float(
            work.collective_s(
                Collective.SEND_RECV,
                nbytes,
                work.placed.pair(chunk % pp * stride, (chunk + 1) % pp * stride),
            )
        )
        for chunk, nbytes in enumerate(crossing_bytes(work))
    ]


def _phases(
    work: Work,
    mine: Bools,
    pipeline: Pipelined,
    rank: int,
    exchange_s: float,
    optimizer_s: float,
) -> dict[str, float]:
    """Seconds of the slowest rank by phase."""
    found: dict[str, float] = {}
    for phase in (Phase.FORWARD, Phase.RECOMPUTE, Phase.BACKWARD):
        of_phase = mine & (work.graph.op_phase == phase)
        found[phase.label] = work.micro * float(work.op_s[of_phase].sum())
    compute_s = sum(found.values())
    found[Phase.OPTIMIZER.label] = optimizer_s
    found = {name: seconds for name, seconds in found.items() if seconds}
    busy_s = pipeline.busy_s[rank]
    if work.layout.world > 1:
        exposed_s = busy_s - compute_s + exchange_s
        found["exposed_communication"] = max(0.0, exposed_s)
    if work.times.loop_s:
        found["loop"] = work.times.loop_s
    if work.layout.pp > 1:
        found["bubble"] = pipeline.end_s[rank] - busy_s
    return found
