"""The distributed step: from operator times to when each rank is done."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foretell.comm import Collective, Constants
from foretell.graph.graph import Bools, Floats, Graph, Ints
from foretell.graph.ops import Phase
from foretell.parallel.exchange import Gathered, gathered_passes, gradient_exchange
from foretell.parallel.finish import Finish, finish_of
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
    wait_s: Floats
    """Seconds compute stands still after each operator of a pass, for messages."""
    gathered: Gathered | None
    """A microbatch through the whole model where parameters are gathered."""
    stages: tuple[StageTimes, ...]
    """A microbatch through each model chunk."""
    pipeline: Pipelined
    tails: tuple[Overlap, ...]
    """Gradient exchange of each rank, beside its last backward pass or beside all of them."""
    finishes: tuple[Finish, ...]
    """What each rank does after that."""
    stretch: float = 1.0
    """By which everything takes longer than its parts say."""

    def stretched(self, factor: float) -> StepRun:
        """The same step, slower or faster in all of its parts."""
        return dataclasses.replace(
            self,
            step_s=self.step_s * factor,
            op_s=self.op_s * factor,
            phase_s={name: seconds * factor for name, seconds in self.phase_s.items()},
            compute_busy_s=self.compute_busy_s * factor,
            communication_busy_s=self.communication_busy_s * factor,
            stretch=self.stretch * factor,
        )


def run_step(placed: Placed, times: OpTimes, constants: Constants | None = None) -> StepRun:
    """Play the step of every distinct rank; `constants` of collectives other than the shipped."""
    work = Work(placed, times, constants)
    ranks = range(work.layout.pp)
    stages, gathered = _stages(work)
    pipeline = play(placed, stages)
    tails = [gradient_exchange(work, work.on_rank(r)) for r in ranks]
    finishes = [finish_of(work, work.on_rank(r)) for r in ranks]
    reduced = times_reduced(placed)
    ends = [pipeline.end_s[r] + reduced * tails[r].exposed_s + sum(finishes[r]) for r in ranks]
    slowest = int(np.argmax(ends))
    tail, finish = tails[slowest], finishes[slowest]
    units = work.on_rank(slowest)
    mine = units[work.units.op]
    traffic = traffic_of(work)
    links_s = float(work.message_s[mine[placed.messages.op]].sum())
    links_s += gathered.communication_s(units) if gathered else 0.0
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
            reduced * tail.exposed_s + finish.gather_s,
            finish.optimizer_s,
        ),
        sent_bytes=traffic.by_axis,
        network_bytes=traffic.network_bytes,
        compute_busy_s=float(work.micro * work.op_s[mine].sum() + finish.optimizer_s),
        communication_busy_s=work.micro * links_s
        + reduced * tail.communication_s
        + finish.gather_s,
        host_stretch=work.stretches[slowest],
        host_share=work.host_shares[slowest],
        message_s=work.message_s,
        wait_s=work.exposed_message_s,
        gathered=gathered,
        stages=tuple(stages),
        pipeline=pipeline,
        tails=tuple(tails),
        finishes=tuple(finishes),
    )


def play(placed: Placed, stages: Sequence[StageTimes], *, whole: bool = False) -> Pipelined:
    """The job's schedule; `whole`: with the spans of every microbatch."""
    return run_schedule(
        placed.whole.recipe.schedule,
        stages,
        placed.layout.pp,
        placed.microbatches,
        asked_for=placed.cluster.groups[0].device.vendor == "cpu",
        whole=whole,
    )


def times_reduced(placed: Placed) -> int:
    """Gradients that are kept sharded are reduced after every pass, others after the last."""
    return placed.microbatches if placed.whole.recipe.zero == 2 else 1


def weight_gradients(graph: Graph) -> Bools:
    """Operators whose results only the optimizer waits for."""
    makes = (graph.kinds.gemm[:, 3] > 0) & (graph.kinds.gemm_power[:, 3] > 0)
    result: Bools = (graph.op_phase == Phase.BACKWARD) & makes[graph.op_kind]
    return result


def _stages(work: Work) -> tuple[list[StageTimes], Gathered | None]:
    """Times of every model chunk, and the gathers and scatters that are in them."""
    total_s = work.total_s
    forward = work.units.sums(total_s, work.forward)
    backward = work.units.sums(total_s, work.backward)
    weights = work.units.sums(total_s, weight_gradients(work.graph))
    gathered = gathered_passes(work, forward, backward) if work.placed.gathers else None
    if gathered:
        forward = forward * (gathered.forward.end_s / max(forward.sum(), 1e-12))
        backward = backward * (gathered.backward.end_s / max(backward.sum(), 1e-12))
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
        for c, send_s in enumerate(_send_times(work))
    ]
    return stages, gathered


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
    return {name: float(seconds) for name, seconds in found.items()}
