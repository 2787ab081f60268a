"""The fitted models without torch: what `layers.py` and `cross.py` compute, all members at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from foretell.graph.graph import Floats, Ints
from foretell.predictors.analytic.rates import GROUPS
from foretell.predictors.scaledl.context import Context, Inflow
from foretell.predictors.scaledl.form import (
    DISPATCH_S,
    LOG_MICRO,
    MOST_CORRECTION,
    MOST_RHO,
    OUTPUTS,
    OVERHEAD_S,
    POWER_SHARPNESS,
    SHARPNESS,
    USUAL_LOG_WATTS,
    USUAL_MATRIX_LEAD,
)
from foretell.predictors.scaledl.known import Keys, keys_of, places
from foretell.predictors.scaledl.limits import LIMITS, limits_row, no_faster
from foretell.predictors.scaledl.setting import FIRST_UNIT, VECTOR, Setting
from foretell.predictors.scaledl.table import COLUMNS, UNITS, OpTable, alike

_NO_TILES = 1e9
_LEAST = 1e-9
_FEW = 4
"""Edges into a node that are added up one after the other for all nodes at once."""

_LINEAR = ("weight", "bias")
_ANSWERS = 128
"""That are kept, of about 0.2 MB each."""

Array = np.ndarray


@dataclass(frozen=True, eq=False)
class Known:
    """Kernels that differ from their like, and the logarithms by which."""

    keys: Keys
    """Sorted."""
    values: Floats


@dataclass(frozen=True, eq=False)
class Member:
    """Weights of one fitted model, by the names torch gives them."""

    layers: Mapping[str, Floats]
    cross: Mapping[str, Floats] | None
    devices: Mapping[str, int]
    """Embeddings by device id; 0 is a device not seen."""
    names: Mapping[str, int]
    """Embeddings by operator; 0 is an unknown one."""
    known: Known


@dataclass(frozen=True, eq=False)
class Ensemble:
    """Several members, evaluated together; the first axis of all results counts them."""

    members: Sequence[Member]
    reference: Mapping[str, Floats]
    """Specification of the device the others are compared with, for "gpu" and "cpu"."""

    @property
    def has_cross(self) -> bool:
        """Whether surroundings count."""
        return self._cross is not None

    def log_seconds(
        self, table: OpTable, setting: Setting, context: Context | None = None
    ) -> Floats:
        """[members, kernels] logarithms of the time of every kernel of a step."""
        said = self._answers(_Question(table, setting, context))
        seconds = self._row_seconds(said, table, setting)[:, table.row]
        if context is not None and said.change is not None:
            waits_s = table.waits_s[table.row]
            seconds = (seconds - waits_s) * np.exp(said.change[:, context.place]) + waits_s
        logs: Floats = np.log(seconds)
        return logs

    def row_seconds(self, table: OpTable, setting: Setting) -> Floats:
        """[members, rows] time of every row of a table by the layer model alone."""
        return self._row_seconds(self._answers(_Question(table, setting, None)), table, setting)

    def changes(self, table: OpTable, setting: Setting, context: Context) -> Floats:
        """[members, surroundings] logarithms by which surroundings change times."""
        change = self._answers(_Question(table, setting, context)).change
        assert change is not None
        return change

    def dispatch_s(self, setting: Setting) -> Floats:
        """[members] host time of one launch."""
        made = []
        for m in self.members:
            inputs = np.concatenate([setting.features, self._device(m, setting)])
            made.append(m.layers["host.weight"][0] @ inputs + m.layers["host.bias"][0])
        seconds: Floats = DISPATCH_S * np.exp(np.array(made))
        return seconds

    def _device(self, member: Member, setting: Setting) -> Floats:
        found: Floats = member.layers["device.weight"][member.devices.get(setting.device, 0)]
        return found

    def _names(self, table: OpTable) -> Ints:
        """[members, rows] embeddings of the names of the rows."""
        return np.array([[m.names.get(n, 0) for n in table.name] for m in self.members])

    @cached_property
    def _entry(self) -> _Entry:
        return _Entry.of([m.layers for m in self.members], "first")

    @cached_property
    def _limits(self) -> Floats:
        """[members, rows of limits.py, LIMITS] how far operators keep the peak."""
        return np.array([m.layers["limits.weight"] for m in self.members])

    @cached_property
    def _known(self) -> tuple[Keys, Array]:
        """All keys, and [members, 1 + keys] the logarithm of each, zero before the first."""
        keys = np.unique(np.concatenate([m.known.keys for m in self.members]))
        apart = np.zeros((len(self.members), 1 + len(keys)))
        for number, member in enumerate(self.members):
            apart[number, places(member.known.keys, keys)] = member.known.values
        return keys, apart

    @cached_property
    def _cross(self) -> dict[str, Array] | None:
        if any(m.cross is None for m in self.members):
            return None
        return _stacked([m.cross for m in self.members if m.cross is not None])

    @cached_property
    def _rest(self) -> dict[str, Array]:
        names = [f"{n}.{of}" for n in ("second", "last") for of in _LINEAR]
        return _stacked([{n: m.layers[n] for n in names} for m in self.members])

    @cached_property
    def _around(self) -> Array:
        """[members, numbers of setting and device, width] what they add in the first layer."""
        count = self._entry.inputs
        return _stacked([{"": m.layers["first.weight"].T[count:]} for m in self.members])[""]

    def _hidden(self, table: OpTable, setting: Setting, names: Ints) -> Array:
        """[members, rows, width] what the networks make of every row."""
        w = self._rest
        around = [np.append(setting.features, self._device(m, setting)) for m in self.members]
        same = np.einsum("ms,msw->mw", np.array(around, dtype=np.float32), self._around)
        first = _silu(self._entry.alone(table, names) + same[:, None, :])
        hidden: Array = first + _silu(_linear(first, w["second.weight"], w["second.bias"]))
        return hidden

    @cached_property
    def _answers(self) -> Callable[[_Question], _Answer]:
        """The batch is no part of a question: a sweep over batches asks the networks once."""
        return lru_cache(maxsize=_ANSWERS)(self._answer)

    def _answer(self, asked: _Question) -> _Answer:
        table, setting, w = asked.table, asked.setting, self._rest
        names = self._names(table)
        hidden = self._hidden(table, setting, names)
        made = _linear(hidden, w["last.weight"], w["last.bias"])
        limits = self._limits[:, limits_row(table.group, table.unit)]
        both = np.concatenate([made, limits], 2).astype(np.float64)
        keys, apart = self._known
        return _Answer(
            out=dict(zip((*OUTPUTS, *LIMITS), np.moveaxis(both, 2, 0).copy(), strict=True)),
            apart=apart[:, places(keys_of(table, setting), keys)].sum(2),
            change=self._change(hidden, asked.context),
        )

    def _row_seconds(self, said: _Answer, table: OpTable, setting: Setting) -> Floats:
        reference = self.reference["cpu" if setting.is_cpu else "gpu"]
        log_compute = _log_compute(table, setting.spec, reference, said.out)
        log_memory = _log_memory(table, setting.spec, reference, said.out)
        busy = np.logaddexp(SHARPNESS * log_compute, SHARPNESS * log_memory) / SHARPNESS
        launched = table.launches * OVERHEAD_S * np.exp(said.out["overhead"])
        seconds: Floats = launched + np.exp(busy + said.apart) + table.waits_s
        return seconds

    def _change(self, hidden: Array, context: Context | None) -> Floats | None:
        w = self._cross
        if w is None or context is None:
            return None
        state = _silu(_linear(hidden, w["enter.weight"], w["enter.bias"]))
        for i, part in enumerate((context.first, context.second)):
            mine = state[:, part.own]
            heard = _linear(mine, w[f"own.{i}.weight"], w[f"own.{i}.bias"])
            for way, inflow in (("before", part.before), ("after", part.after)):
                heard += _mean(state, inflow, len(part)) @ w[f"{way}.{i}"].swapaxes(1, 2)
            state = mine + _silu(heard)
        left = _linear(state, w["leave.weight"], w["leave.bias"])[:, :, 0]
        changed: Floats = MOST_CORRECTION * np.tanh(left.astype(np.float64))
        return changed


class _Question:
    """Operators in a setting, without their sizes at a batch: what the networks are asked.

    Tables of one graph share their columns, so these are compared by identity.
    """

    def __init__(self, table: OpTable, setting: Setting, context: Context | None) -> None:
        self.table, self.setting, self.context = table, setting, context
        self._columns = (table.shape, table.group, table.unit, table.name, context)
        self._setting = (setting.device, setting.features.tobytes())

    def __hash__(self) -> int:
        return hash((*map(id, self._columns), self._setting))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, _Question)
            and self._setting == other._setting
            and all(a is b for a, b in zip(self._columns, other._columns, strict=True))
        )


@dataclass(frozen=True, eq=False)
class _Answer:
    """What the networks say of operators in a setting."""

    out: Mapping[str, Floats]
    """[members, rows] each."""
    apart: Floats
    """[members, rows] by how much the kernels differ from their like."""
    change: Floats | None
    """[members, surroundings]."""


@dataclass(frozen=True, eq=False)
class _Entry:
    """A first layer with everything folded in that does not depend on the step."""

    shape: Array
    """[columns, members x width]."""
    base: Array
    """[members, width]."""
    unit: Array
    group: Array
    name: Array
    """[members, kinds, width] what each kind adds."""
    inputs: int
    """Of the layer that describe the operator itself; others may follow."""

    @classmethod
    def of(cls, members: Sequence[Mapping[str, Floats]], layer: str) -> _Entry:
        """From the weights of a layer of all members."""
        made: dict[str, list[Floats]] = {}
        for w in members:
            widths = [len(COLUMNS), len(UNITS)]
            widths += [w[f"{n}.weight"].shape[1] for n in ("group", "name")]
            *parts, _ = np.split(w[f"{layer}.weight"].T, np.cumsum(widths))
            shape, unit, group, name = parts
            shape = shape * w["shape_scale"][:, None]
            found = {
                "shape": shape,
                "base": w[f"{layer}.bias"] - w["shape_mean"] @ shape,
                "unit": unit,
                "group": w["group.weight"][: len(GROUPS)] @ group,
                "name": _padded(w["name.weight"] @ name, members),
            }
            for key, value in found.items():
                made.setdefault(key, []).append(value)
        stacked = {key: np.array(values, dtype=np.float32) for key, values in made.items()}
        stacked["shape"] = np.concatenate(list(stacked["shape"]), axis=1)
        return cls(**stacked, inputs=sum(widths))

    def alone(self, table: OpTable, names: Ints) -> Array:
        """[members, rows, width] what the operators themselves give."""
        members, width = self.base.shape
        product = table.shape.astype(np.float32) @ self.shape
        found = product.reshape(len(table), members, width).swapaxes(0, 1)
        found = found + self.unit[:, alike(table.unit)] + self.group[:, table.group]
        found += self.base[:, None, :]
        made: Array = found + np.take_along_axis(self.name, names[:, :, None], axis=1)
        return made


def _padded(name: Floats, members: Sequence[Mapping[str, Floats]]) -> Floats:
    """As many names as the member that knows most."""
    most = max(len(w["name.weight"]) for w in members)
    return np.concatenate([name, np.zeros((most - len(name), name.shape[1]))])


def _stacked(members: Sequence[Mapping[str, Floats]]) -> dict[str, Array]:
    return {n: np.array([m[n] for m in members], dtype=np.float32) for n in members[0]}


def _linear(x: Array, weight: Array, bias: Array) -> Array:
    made: Array = x @ weight.swapaxes(1, 2) + bias[:, None, :]
    return made


def _mean(state: Array, inflow: Inflow, nodes: int) -> Array:
    """Mean of what reaches each node; zero where nothing does."""
    members, _, width = state.shape
    found = np.zeros((nodes, members, width), dtype=state.dtype)
    if len(inflow.src):
        flat = state.swapaxes(0, 1).reshape(-1, members * width)
        sums = flat[inflow.src[inflow.first]]
        for further in range(1, _FEW):
            more = np.flatnonzero((inflow.count > further) & (inflow.count <= _FEW))
            sums[more] += flat[inflow.src[inflow.first[more] + further]]
        for node in np.flatnonzero(inflow.count > _FEW):
            first = inflow.first[node]
            sums[node] = flat[inflow.src[first : first + inflow.count[node]]].sum(0)
        means = sums / inflow.count[:, None].astype(state.dtype)
        found[inflow.into] = means.reshape(-1, members, width)
    return found.swapaxes(0, 1)


def _log_compute(
    table: OpTable, spec: Floats, reference: Floats, out: Mapping[str, Floats]
) -> Floats:
    rho = MOST_RHO * _sigmoid(out["rho_compute"])
    lead, power = _sigmoid(out["share_processors"]), _sigmoid(out["share_power"])
    peak, usual = (_reached(s, table.unit, lead, power) for s in (spec, reference))
    ideal = _log(table.flops) - (1 - rho) * peak - rho * usual
    waves = _log(np.where(table.tiles > 0, table.tiles, _NO_TILES)) - spec[2]
    logits = np.stack([out["share_waves"], out["share_short"], out["share_none"]])
    shares = np.exp(logits - logits.max(0))
    shares /= shares.sum(0)
    found: Floats = (
        ideal
        + no_faster(out["compute"], table.group, _softplus)
        + shares[0] * _softplus(out["waves"] - waves)
        + shares[1] * _softplus(out["short_compute"] + LOG_MICRO - ideal)
    )
    return found


def _reached(spec: Floats, unit: Ints, lead: Floats, power: Floats) -> Floats:
    """Logarithm of the peak that counts."""
    peak = spec[FIRST_UNIT:][unit]
    more = np.maximum(peak - spec[VECTOR] - USUAL_MATRIX_LEAD, 0.0)
    short = USUAL_LOG_WATTS + spec[2] - spec[3]
    starved = np.logaddexp(0.0, POWER_SHARPNESS * short) / POWER_SHARPNESS
    found: Floats = peak - lead * more - power * starved
    return found


def _log_memory(
    table: OpTable, spec: Floats, reference: Floats, out: Mapping[str, Floats]
) -> Floats:
    rho = MOST_RHO * _sigmoid(out["rho_memory"])
    log_bytes = _log(table.nbytes)
    ideal = log_bytes - (1 - rho) * spec[0] - rho * reference[0]
    short = _softplus(out["short_memory"] + LOG_MICRO - ideal)
    gain = _softplus(out["cache"] - _softplus(log_bytes - spec[1]))
    found: Floats = ideal + out["memory"] + _sigmoid(out["share_memory"]) * short - gain
    return found


def _log(values: Floats) -> Floats:
    logs: Floats = np.log(np.maximum(values, _LEAST))
    return logs


def _sigmoid(x: Array) -> Array:
    found: Array = 0.5 * (1 + np.tanh(0.5 * x))
    return found


def _softplus(x: Floats) -> Floats:
    found: Floats = np.logaddexp(0.0, x)
    return found


def _silu(x: Array) -> Array:
    found: Array = x * _sigmoid(x)
    return found
