"""A small training loop in a process of its own: steps on command, answers with what they took.

python -m benchmarks.probes_worker MODEL THREADS
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

_WARM_STEPS = 20


def main() -> None:
    """Take as many steps as each line of the input says."""
    name, threads = sys.argv[1], int(sys.argv[2])
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    step = MODELS[name]()
    for _ in range(_WARM_STEPS):
        step()
    print("ready", flush=True)
    for line in sys.stdin:
        steps = int(line)
        cpu, wall = time.process_time(), time.perf_counter()
        for _ in range(steps):
            step()
        answer = {"wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu}
        print(json.dumps(answer), flush=True)


def _step(model: nn.Module, inputs: torch.Tensor) -> Callable[[], None]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    labels = torch.randint(10, (len(inputs),))

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(inputs), labels).backward()
        optimizer.step()

    return step


def _mlp() -> Callable[[], None]:
    layers = [nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)]
    return _step(nn.Sequential(*layers), torch.randn(128, 512))


def _convnet() -> Callable[[], None]:
    layers: list[nn.Module] = []
    for channels, width in ((3, 16), (16, 32), (32, 64)):
        layers += [nn.Conv2d(channels, width, 3, padding=1), nn.BatchNorm2d(width)]
        layers += [nn.ReLU(), nn.MaxPool2d(2)]
    layers += [nn.Flatten(), nn.Linear(64 * 4 * 4, 10)]
    return _step(nn.Sequential(*layers), torch.randn(16, 3, 32, 32))


MODELS = {"mlp": _mlp, "convnet": _convnet}


if __name__ == "__main__":
    main()
