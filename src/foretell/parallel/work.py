"""What one rank does in a step, operator by operator, at the pace of its host and its peers."""

from __future__ import annotations

import numpy as np

from foretell.comm import Collective, Constants, Group, bus_bytes, carried_as
from foretell.comm import collective_s as alone_s
from foretell.graph.graph import Bools, Floats, Ints
from foretell.graph.ops import Phase
from foretell.parallel.place import Placed
from foretell.parallel.times import OpTimes, stretch


class Work:
    """A placed job with times: what streams, schedules and reports are made from."""

    def __init__(self, placed: Placed, times: OpTimes, constants: Constants | None) -> None:
        self.placed, self.times, self.constants = placed, times, constants
        self.recipe = placed.whole.recipe
        self.layout = placed.layout
        self.graph = placed.local.graph.at(self.recipe.batch)
        self.units = placed.units
        self.groups = placed.groups
        self.micro = placed.microbatches
        self.device = placed.cluster.groups[0].device
        count = len(self.graph)
        self.op_s = times.device_s[:count]
        self.optimizer_op_s = times.device_s[count:]
        self.op_rank = self._ranks()
        self.message_s, self.exposed_message_s = self._message_times()
        self.stretches: list[float] = []
        self.host_shares: list[float] = []
        self._wait_for_host(times.host_s)
        self._wait_for_straggler()

    @property
    def total_s(self) -> Floats:
        """Seconds of every operator with what it waits for inside the pass."""
        return self.op_s + self.exposed_message_s

    @property
    def forward(self) -> Bools:
        """Operators of the forward pass."""
        return self.graph.phase_mask(Phase.FORWARD)

    @property
    def backward(self) -> Bools:
        """Operators of the backward pass, recomputation included."""
        return self.graph.phase_mask(Phase.BACKWARD, Phase.RECOMPUTE)

    def on_rank(self, rank: int) -> Bools:
        """Units that a pipeline rank holds."""
        result: Bools = self.placed.stage_of_unit % self.layout.pp == rank
        return result

    def collective_s(self, kind: Collective, nbytes: Floats | float, group: Group) -> Floats:
        """Seconds of a collective in the running step."""
        sizes = np.asarray(nbytes, dtype=np.float64)
        factor = self.times.exchange_factor * (
            self.times.network_factor if group.nodes > 1 else 1.0
        )
        seconds = factor * alone_s(kind, sizes, group, constants=self.constants)
        return np.where(sizes > 0, seconds, 0.0)

    def sent_bytes(self, kind: Collective, nbytes: float, size: int) -> float:
        """What a rank sends for a collective as its device's library carries it out."""
        return bus_bytes(carried_as(kind, self.device), nbytes, size)

    def _ranks(self) -> Ints:
        """Pipeline rank of every operator of the step, the optimizer's included."""
        stepped = self.units.parameter[self.graph.parameters.trainable]
        unit = np.concatenate([self.units.op, stepped[: len(self.optimizer_op_s)]])
        result: Ints = self.placed.stage_of_unit[unit] % self.layout.pp
        return result

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
                    seconds[chosen] = self.collective_s(kind, messages.nbytes[chosen], group)
        count = len(self.graph)
        added = np.zeros(count)
        blocking = messages.hidden_behind < 0
        np.add.at(added, messages.op[blocking], seconds[blocking])
        beside = np.zeros(count)
        np.add.at(beside, messages.hidden_behind[~blocking], seconds[~blocking])
        added += np.maximum(0.0, beside - self.op_s * (beside > 0))
        return seconds, added

    def _wait_for_host(self, host_s: Floats) -> None:
        """Stretch what each pipeline rank does to the pace of the host that launches it."""
        count = len(self.graph)
        op_rank, step_rank = self.op_rank[:count], self.op_rank[count:]
        launches = np.bincount(self.placed.messages.op, minlength=count)
        host = host_s[:count] + launches * self.times.message_host_s
        device = self.op_s + self.exposed_message_s
        op_s, exposed, stepped = self.op_s.copy(), self.exposed_message_s, self.optimizer_op_s
        for rank in range(self.layout.pp):
            ops, steps = op_rank == rank, step_rank == rank
            busy_s = self.micro * float(device[ops].sum()) + float(stepped[steps].sum())
            launch_s = self.micro * float(host[ops].sum()) + float(host_s[count:][steps].sum())
            factor = stretch(busy_s, launch_s)
            self.host_shares.append(launch_s / busy_s if busy_s else 0.0)
            self.stretches.append(factor)
            op_s[ops] *= factor
            exposed = np.where(ops, exposed * factor, exposed)
            stepped = np.where(steps, stepped * factor, stepped)
        self.op_s, self.exposed_message_s, self.optimizer_op_s = op_s, exposed, stepped

    def _wait_for_straggler(self) -> None:
        """One device is slower; at worst it is among those that hold the others up anyway."""
        if self.recipe.straggler:
            rank = self.op_rank[: len(self.graph)]
            busy = np.bincount(rank, weights=self.op_s, minlength=self.layout.pp)
            slow = rank == int(np.argmax(busy))
            factor = 1 + self.recipe.straggler
            self.op_s = np.where(slow, self.op_s * factor, self.op_s)
            self.optimizer_op_s = self.optimizer_op_s * factor

    def _slowest_hop(self, ring: Group) -> Group:
        gpus = ring.node_group.gpus_per_node
        return self.placed.pair(0, gpus if ring.nodes > 1 else self.layout.tp)
