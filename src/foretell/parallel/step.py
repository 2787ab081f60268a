"""The distributed step: from operator times to when each rank is done."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

from foretell.comm import Collective, Constants, Group, bus_bytes, carried_as
from foretell.comm import collective_s as alone_s
from foretell.graph.graph import Bools, Floats, Ints, itemsize_of
from foretell.graph.ops import Phase, Role
from foretell.parallel.place import Placed
from foretell.parallel.schedule import Pipelined, StageTimes, run_schedule
from foretell.parallel.shard import expert_parameters
from foretell.parallel.streams import Overlap, bucketed_backward, gathered_pass
from foretell.parallel.times import OpTimes, stretch

_FIRST_BUCKET_BYTES = 1024**2
_MIB = 1024**2
_HOST_BYTES_PER_S = 25e9
"""What one device moves to and from the host's memory."""
_HOST_STEP_BYTES_PER_S = 190e9
"""Memory bandwidth of a host whose processors run the optimizer, shared by its devices."""
_RANK_STEP_BYTES_PER_S = 105e9
"""What the few threads of one rank reach of it."""
_HOST_STEP_BYTES = 28
"""Moved per parameter: four fp32 arrays read, three written."""


@dataclass(frozen=True, kw_only=True)
class StepRun:
    """One step of a job."""

    step_s: float
    op_s: Floats
    """Seconds of every operator of a rank as it runs, waiting for the host included."""
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
    message_s: Floats
    """Seconds of each message inside a pass."""
    pipeline: Pipelined
    tails: tuple[Overlap, ...] = ()
    """Gradient exchange beside the last backward pass of each rank."""


def run_step(placed: Placed, times: OpTimes, constants: Constants | None = None) -> StepRun:
    """Play the step of every distinct rank; `constants` of collectives other than the shipped."""
    return _Step(placed, times, constants).run()


class _Step:
    def __init__(self, placed: Placed, times: OpTimes, constants: Constants | None) -> None:
        self.placed, self.constants = placed, constants
        self.recipe = placed.whole.recipe
        self.layout = placed.layout
        self.graph = placed.local.graph.at(self.recipe.batch)
        self.count = len(self.graph)
        self.op_s = times.device_s[: self.count]
        self.optimizer_op_s = times.device_s[self.count :]
        self.units = placed.units
        self.groups = placed.groups
        self.micro = placed.microbatches
        self.phase = self.graph.op_phase
        self.message_host_s, self.loop_s = times.message_host_s, times.loop_s
        self.factor, self.network_factor = times.exchange_factor, times.network_factor
        self.contention, self.copy_bytes_per_s = times.contention, times.copy_bytes_per_s
        self.device = placed.cluster.groups[0].device
        self.message_s, self.exposed_message_s = self._message_times()
        self._wait_for_host(times.host_s)
        self._wait_for_straggler()

    # --- what each operator waits for

    def _message_times(self) -> tuple[Floats, Floats]:
        """Seconds of each message, and seconds added after each operator."""
        messages = self.placed.messages
        seconds = np.zeros(len(messages))
        axis = np.array(messages.axis)
        kinds = np.array([c.value for c in messages.collective])
        for a in set(messages.axis):
            for kind in set(messages.collective):
                chosen = (axis == a) & (kinds == kind.value)
                if chosen.any():
                    group = self.groups[a]
                    if kind is Collective.SEND_RECV:
                        group = self._slowest_hop(group)
                    seconds[chosen] = self._collective_s(kind, messages.nbytes[chosen], group)
        added = np.zeros(self.count)
        blocking = messages.hidden_behind < 0
        np.add.at(added, messages.op[blocking], seconds[blocking])
        beside = np.zeros(self.count)
        np.add.at(beside, messages.hidden_behind[~blocking], seconds[~blocking])
        added += np.maximum(0.0, beside - self.op_s * (beside > 0))
        return seconds, added

    def _wait_for_host(self, host_s: Floats) -> None:
        """Stretch what each pipeline rank does to the pace of the host that launches it."""
        op_rank = self.placed.stage_of_unit[self.units.op] % self.layout.pp
        trainable = self.graph.parameters.trainable
        step_unit = self.units.parameter[trainable][: len(self.optimizer_op_s)]
        step_rank = self.placed.stage_of_unit[step_unit] % self.layout.pp
        launches = np.bincount(self.placed.messages.op, minlength=self.count)
        host = host_s[: self.count] + launches * self.message_host_s
        device = self.op_s + self.exposed_message_s
        op_s, exposed, stepped = self.op_s.copy(), self.exposed_message_s, self.optimizer_op_s
        self.stretches = []
        for rank in range(self.layout.pp):
            ops, steps = op_rank == rank, step_rank == rank
            factor = stretch(
                self.micro * float(device[ops].sum()) + float(stepped[steps].sum()),
                self.micro * float(host[ops].sum()) + float(host_s[self.count :][steps].sum()),
            )
            self.stretches.append(factor)
            op_s[ops] *= factor
            exposed = np.where(ops, exposed * factor, exposed)
            stepped = np.where(steps, stepped * factor, stepped)
        self.op_s, self.exposed_message_s, self.optimizer_op_s = op_s, exposed, stepped

    def _wait_for_straggler(self) -> None:
        """One device is slower; at worst it is among those that hold the others up anyway."""
        if self.recipe.straggler:
            rank = self.placed.stage_of_unit[self.units.op] % self.layout.pp
            busy = np.bincount(rank, weights=self.op_s, minlength=self.layout.pp)
            slow = rank == int(np.argmax(busy))
            self.op_s = np.where(slow, self.op_s * (1 + self.recipe.straggler), self.op_s)

    def _collective_s(self, kind: Collective, nbytes: Floats | float, group: Group) -> Floats:
        sizes = np.asarray(nbytes, dtype=np.float64)
        factor = self.factor * (self.network_factor if group.nodes > 1 else 1.0)
        seconds = factor * alone_s(kind, sizes, group, constants=self.constants)
        return np.where(sizes > 0, seconds, 0.0)

    def _sent(self, kind: Collective, nbytes: float, size: int) -> float:
        return bus_bytes(carried_as(kind, self.device), nbytes, size)

    def _slowest_hop(self, ring: Group) -> Group:
        gpus = ring.node_group.gpus_per_node
        return self.placed.pair(0, gpus if ring.nodes > 1 else self.layout.tp)

    # --- the step

    def run(self) -> StepRun:
        recipe, layout = self.recipe, self.layout
        total_s = self.op_s + self.exposed_message_s
        forward = self.units.sums(total_s, self.phase == Phase.FORWARD)
        behind = (self.phase == Phase.BACKWARD) | (self.phase == Phase.RECOMPUTE)
        backward = self.units.sums(total_s, behind)
        weights = self.units.sums(total_s, self._weight_gradients())
        stage_of_unit = self.placed.stage_of_unit
        forward, backward, gathers = self._with_gathers(forward, backward)
        stages = self._stage_times(stage_of_unit, forward, backward, weights)
        pipeline = run_schedule(
            recipe.schedule,
            stages,
            layout.pp,
            self.micro,
            asked_for=self.device.vendor == "cpu",
        )
        tails = [
            self._gradient_exchange(stage_of_unit % layout.pp == rank, total_s)
            for rank in range(layout.pp)
        ]
        after = [self._optimizer_s(stage_of_unit % layout.pp == rank) for rank in range(layout.pp)]
        ends = [
            pipeline.end_s[r] + tails[r].exposed_s + after[r][0] + after[r][1]
            for r in range(layout.pp)
        ]
        slowest = int(np.argmax(ends))
        step_s = float(ends[slowest]) + self.loop_s
        mine = stage_of_unit[self.units.op] % layout.pp == slowest
        phase_s = self._phases(mine, stages, slowest, pipeline, tails[slowest], after[slowest])
        sent, network = self._traffic(stage_of_unit)
        return StepRun(
            step_s=step_s,
            op_s=np.concatenate([self.op_s, self.optimizer_op_s]),
            phase_s=phase_s,
            sent_bytes=sent,
            network_bytes=network,
            compute_busy_s=float(self.micro * self.op_s[mine].sum() + after[slowest][0]),
            communication_busy_s=float(
                self.micro * (self._message_sum(mine) + gathers) + tails[slowest].communication_s
            ),
            host_stretch=self.stretches[slowest],
            message_s=self.message_s,
            pipeline=pipeline,
            tails=tuple(tails),
        )

    def _weight_gradients(self) -> Bools:
        kinds = self.graph.kinds
        makes = (kinds.gemm[:, 3] > 0) & (kinds.gemm_power[:, 3] > 0)
        result: Bools = (self.phase == Phase.BACKWARD) & makes[self.graph.op_kind]
        return result

    def _with_gathers(self, forward: Floats, backward: Floats) -> tuple[Floats, Floats, float]:
        """Unit times with parameter gathers and gradient scatters of zero=3 where they show."""
        if self.recipe.zero < 3 or self.layout.shard == 1:
            return forward, backward, 0.0
        nbytes, root = self._gathered_bytes()
        group = self.groups["shard"]
        gather = self._collective_s(Collective.ALL_GATHER, nbytes, group)
        scatter = self._collective_s(Collective.REDUCE_SCATTER, nbytes, group)
        scatter = scatter + self._collective_s(
            Collective.ALL_REDUCE, nbytes / self.layout.shard, self.groups["copies"]
        )
        settings: dict[str, Any] = {
            "prefetch": self.recipe.prefetch,
            # On a CPU there are no streams: gathers and scatters return when they are done.
            "overlap": self.recipe.overlap and self.device.vendor != "cpu",
            "contention": self.contention,
        }
        nothing = np.zeros(len(nbytes))
        copied = nbytes / self.copy_bytes_per_s
        packed = copied * (1 + 1 / self.layout.shard)  # the own shard in, everything out
        there = gathered_pass(
            (forward + packed).tolist(), gather.tolist(), nothing.tolist(), **settings
        )
        kept = root if self.recipe.reshard else np.ones_like(root)
        again = np.where(kept, 0.0, gather)[::-1]
        if not self.recipe.training:
            return (
                forward * (there.end_s / max(forward.sum(), 1e-12)),
                backward,
                float(gather.sum()),
            )
        back = gathered_pass(
            (backward + np.where(kept, 0.0, packed) + copied)[::-1].tolist(),
            again.tolist(),
            scatter[::-1].tolist(),
            **settings,
        )
        busy = float(gather.sum() + again.sum() + scatter.sum())
        return (
            forward * (there.end_s / max(forward.sum(), 1e-12)),
            backward * (back.end_s / max(backward.sum(), 1e-12)),
            busy,
        )

    def _stage_times(
        self, stage_of_unit: Ints, forward: Floats, backward: Floats, weights: Floats
    ) -> list[StageTimes]:
        chunks = int(stage_of_unit.max()) + 1
        sends = self._send_times(stage_of_unit, chunks)

        def total(values: Floats, chunk: int) -> float:
            return float(values[stage_of_unit == chunk].sum())

        return [
            StageTimes(
                forward_s=total(forward, c),
                backward_s=total(backward, c),
                weights_s=total(weights, c),
                send_s=sends[c],
            )
            for c in range(chunks)
        ]

    def _send_times(self, stage_of_unit: Ints, chunks: int) -> list[float]:
        if self.layout.pp == 1:
            return [0.0] * chunks
        stride, pp = self.layout.stage_stride, self.layout.pp
        return [
            float(
                self._collective_s(
                    Collective.SEND_RECV,
                    nbytes,
                    self.placed.pair(chunk % pp * stride, (chunk + 1) % pp * stride),
                )
            )
            for chunk, nbytes in enumerate(self._crossing_bytes(stage_of_unit, chunks))
        ]

    def _crossing_bytes(self, stage_of_unit: Ints, chunks: int) -> list[float]:
        """Activations that leave each chunk for the ones after it."""
        graph = self.graph
        forward = self.phase == Phase.FORWARD
        op_stage = stage_of_unit[self.units.op]
        edges = forward[graph.edge_src] & forward[graph.edge_dst]
        last = op_stage.copy()
        np.maximum.at(last, graph.edge_src[edges], op_stage[graph.edge_dst[edges]])
        varies: Bools = np.any(graph.kinds.bytes_written[:, 1:], axis=1)[graph.op_kind]
        written = graph.kind_bytes_written[graph.op_kind]
        result = np.zeros(chunks)
        for op in np.flatnonzero(forward & varies & (last > op_stage)).tolist():
            result[op_stage[op] : last[op]] += written[op]
        return [float(v) for v in result]

    # --- gradients and optimizer

    def _unit_parameter_bytes(self) -> Floats:
        """Bytes of each unit's parameters as they are gathered: in the compute format."""
        parameters = self.graph.parameters
        itemsize = np.minimum(itemsize_of(parameters.dtype), self.recipe.compute_dtype.itemsize)
        itemsize = np.maximum(itemsize, 2) if self.recipe.precision == "fp8" else itemsize
        return self.units.parameter_sums(parameters.numel * itemsize)

    def _gathered_bytes(self) -> tuple[Floats, Bools]:
        """Bytes gathered before each unit, and which units are not given up after forward.

        What lies outside the blocks is one group: gathered first, kept, and reduced last.
        """
        nbytes = self._unit_parameter_bytes()
        root = np.zeros(len(nbytes), dtype=np.bool_)
        root[[0, -1]] = True
        if self.layout.pp == 1:
            nbytes[0] += nbytes[-1]
            nbytes[-1] = 0.0
        return nbytes, root

    def _gradient_exchange(self, on_rank: Bools, total_s: Floats) -> Overlap:
        """Averaging gradients beside the last backward pass of one rank."""
        recipe = self.recipe
        nothing = Overlap(end_s=0.0, compute_s=0.0, communication_s=0.0)
        if not recipe.training or self.layout.replicas == 1 or recipe.zero == 3:
            return nothing
        ops = on_rank[self.units.op] & (
            (self.phase == Phase.BACKWARD) | (self.phase == Phase.RECOMPUTE)
        )
        backward_s = float(total_s[ops].sum())
        clock = np.cumsum(np.where(ops, total_s, 0.0))
        clock = clock - (clock[np.argmax(ops)] - total_s[np.argmax(ops)] if ops.any() else 0.0)
        storages = self.graph.storages
        made = (storages.role == Role.GRADIENT) & (storages.alloc_op >= 0)
        made &= ops[np.maximum(storages.alloc_op, 0)]
        order = np.argsort(storages.alloc_op[made], kind="stable")
        at = storages.alloc_op[made][order]
        nbytes = self.graph.storage_bytes[made][order]
        if not len(at):
            return nothing
        if recipe.fp32_gradients:
            itemsize = recipe.parameter_itemsize
            nbytes = nbytes * 4 / itemsize
        experts = self._expert_share(nbytes.sum())
        number = _buckets(nbytes, recipe.bucket_mb * _MIB)
        sizes = np.bincount(number, weights=nbytes).astype(np.float64)
        ready = np.zeros(len(sizes))
        np.maximum.at(ready, number, clock[at])
        seconds = self._exchange_s(sizes * (1 - experts), "dp")
        if experts and self.layout.replicas > self.layout.ep:
            seconds = seconds + self._exchange_s(sizes * experts, "experts")
        copied = np.cumsum(sizes) / self.copy_bytes_per_s
        played = bucketed_backward(
            backward_s + copied[-1],
            ready + copied,
            seconds,
            overlap=recipe.overlap,
            contention=self.contention,
        )
        # Into the buckets on the way, and out of them once the last one is back.
        return dataclasses.replace(
            played, end_s=played.end_s + copied[-1], compute_s=played.compute_s - copied[-1]
        )

    def _exchange_s(self, nbytes: Floats, axis: str) -> Floats:
        if self.recipe.zero:
            group = self.groups["shard"] if axis == "dp" else self.groups[axis]
            seconds = self._collective_s(Collective.REDUCE_SCATTER, nbytes, group)
            if axis == "dp":
                seconds = seconds + self._collective_s(
                    Collective.ALL_REDUCE, nbytes / self.layout.shard, self.groups["copies"]
                )
            return np.asarray(seconds)
        return np.asarray(self._collective_s(Collective.ALL_REDUCE, nbytes, self.groups[axis]))

    def _expert_share(self, total: float) -> float:
        """Share of gradient bytes that belong to experts, which fewer ranks hold in common."""
        if self.layout.ep == 1 or not total:
            return 0.0
        numel = self.graph.parameters.numel
        return float(numel[expert_parameters(self.placed.whole.graph)].sum() / numel.sum())

    def _optimizer_s(self, on_rank: Bools) -> tuple[float, float]:
        """(compute, communication) after the last gradient is there."""
        recipe = self.recipe
        if not recipe.training or not len(self.optimizer_op_s):
            return 0.0, 0.0
        trainable = np.flatnonzero(self.graph.parameters.trainable)
        mine = on_rank[self.units.parameter[trainable]]
        share = 1 / self.layout.shard if recipe.zero else 1.0
        compute = float(self.optimizer_op_s[mine].sum()) * share
        numel = self.graph.parameters.numel[trainable][mine]
        itemsize = itemsize_of(self.graph.parameters.dtype[trainable][mine])
        nbytes = float((numel * itemsize).sum())
        if recipe.offload_optimizer:
            compute = self._host_optimizer_s(nbytes, float(numel.sum()), share)
        gather = 0.0
        if recipe.zero in (1, 2):
            gather = float(self._collective_s(Collective.ALL_GATHER, nbytes, self.groups["shard"]))
        return compute, gather

    def _host_optimizer_s(self, nbytes: float, numel: float, share: float) -> float:
        """Gradients to the host, the step there, and the rank's share of the parameters back.

        Gradients pass through every rank's buckets whole: measured, they take as long on eight
        ranks as on one.
        """
        devices = self.placed.cluster.groups[0].gpus_per_node
        moved = (1 + share) * nbytes / _HOST_BYTES_PER_S
        touched = numel * share * _HOST_STEP_BYTES
        return moved + touched * (1 / _RANK_STEP_BYTES_PER_S + devices / _HOST_STEP_BYTES_PER_S)

    # --- what is reported

    def _message_sum(self, on_rank: Bools) -> float:
        return float(self.message_s[on_rank[self.placed.messages.op]].sum())

    def _phases(
        self,
        mine: Bools,
        stages: list[StageTimes],
        rank: int,
        pipeline: Pipelined,
        tail: Overlap,
        after: tuple[float, float],
    ) -> dict[str, float]:
        """Seconds of the slowest rank by phase."""
        found: dict[str, float] = {}
        compute = 0.0
        for phase in (Phase.FORWARD, Phase.RECOMPUTE, Phase.BACKWARD):
            seconds = self.micro * float(self.op_s[mine & (self.phase == phase)].sum())
            compute += seconds
            if seconds:
                found[phase.label] = seconds
        if after[0]:
            found[Phase.OPTIMIZER.label] = after[0]
        work = pipeline.busy_s[rank]
        exposed = work - compute + tail.exposed_s + after[1]
        if self.layout.world > 1:
            found["exposed_communication"] = max(0.0, exposed)
        if self.loop_s:
            found["loop"] = self.loop_s
        if self.layout.pp > 1:
            found["bubble"] = pipeline.end_s[rank] - work
        return found

    def _traffic(self, stage_of_unit: Ints) -> tuple[dict[str, float], float]:
        """Bytes a device sends per step by axis, averaged over the stages; and off the node."""
        layout, recipe = self.layout, self.recipe
        messages = self.placed.messages
        sent: dict[str, float] = {}
        network = 0.0
        gpus = min(g.gpus_per_node for g in self.placed.cluster.groups)

        def add(axis: str, group_name: str, nbytes: float) -> None:
            nonlocal network
            if nbytes:
                sent[axis] = sent.get(axis, 0.0) + nbytes
                group = self.groups[group_name]
                network += nbytes / group.per_node if group.nodes > 1 else 0.0

        for axis, collective, nbytes in zip(
            messages.axis, messages.collective, messages.nbytes, strict=True
        ):
            size = {"tp": layout.tp, "cp": layout.cp, "ep": layout.ep}[axis]
            add(axis, axis, self.micro * self._sent(collective, nbytes, size) / layout.pp)
        if recipe.training and layout.replicas > 1:
            self._add_gradient_traffic(add)
        if layout.pp > 1:
            chunks = layout.pp * recipe.virtual_stages
            crossing = sum(self._crossing_bytes(stage_of_unit, chunks)[:-1])
            both = 2 if recipe.training else 1
            nbytes = both * self.micro * crossing / layout.pp
            sent["pp"] = nbytes
            network += (
                nbytes if layout.stage_stride >= gpus else nbytes * layout.stage_stride / gpus
            )
        return sent, network

    def _add_gradient_traffic(self, add: object) -> None:
        layout, recipe = self.layout, self.recipe
        assert callable(add)
        parameters = self.graph.parameters
        trainable = parameters.trainable
        itemsize = itemsize_of(parameters.dtype)
        gradient = float((parameters.numel * itemsize)[trainable].sum()) / layout.pp
        if recipe.fp32_gradients:
            gradient *= 4 / recipe.parameter_itemsize
        if recipe.zero == 3:
            nbytes, root = self._gathered_bytes()
            whole = float(nbytes.sum()) / layout.pp
            again = float(nbytes[~root].sum()) / layout.pp if recipe.reshard else 0.0
            ring = self._sent(Collective.ALL_GATHER, whole + again, layout.shard)
            ring += self._sent(Collective.REDUCE_SCATTER, whole, layout.shard)
            add("dp", "shard", self.micro * ring)
            copies = layout.replicas // layout.shard
            add(
                "dp",
                "copies",
                self.micro * bus_bytes(Collective.ALL_REDUCE, whole / layout.shard, copies),
            )
        elif recipe.zero:
            add("dp", "shard", self._sent(Collective.REDUCE_SCATTER, gradient, layout.shard))
            whole = float((parameters.numel * itemsize).sum()) / layout.pp
            add("dp", "shard", self._sent(Collective.ALL_GATHER, whole, layout.shard))
            copies = layout.replicas // layout.shard
            add("dp", "copies", bus_bytes(Collective.ALL_REDUCE, gradient / layout.shard, copies))
        else:
            add("dp", "dp", bus_bytes(Collective.ALL_REDUCE, gradient, layout.replicas))


def _buckets(nbytes: Floats, cap_bytes: float) -> Ints:
    """Bucket of each gradient in order: closed when full, a small one first so that it is soon."""
    number = np.zeros(len(nbytes), dtype=np.int64)
    current, filled, limit = 0, 0.0, min(_FIRST_BUCKET_BYTES, cap_bytes)
    for i, size in enumerate(nbytes.tolist()):
        if filled >= limit:
            current, filled, limit = current + 1, 0.0, cap_bytes
        number[i] = current
        filled += size
    return number
