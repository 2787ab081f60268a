"""ResNet-50 in training on devices nobody was fitted to: python -m benchmarks.many_devices.

Lambda's published runs, which no predictor is fitted to: one device each, the median of the runs of
one setting. Prints measured and predicted throughput for every device, and errors by predictor.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from benchmarks.sources import RESULTS, ROOT, required_data
from foretell.api import workload_of
from foretell.data.importers import records_of
from foretell.errors import ForetellError
from foretell.fit.steps import case_of
from foretell.predictors import predictor

_PREDICTORS = ("analytic", "scaledl", "scaledl-graph")


def main() -> None:
    """Compare, print and write the table."""
    data = required_data()
    runs = defaultdict(list)
    for record in records_of("lambda_dl_benchmark", data / "lambda_dl_benchmark"):
        if record.model == "timm:resnet50" and record.devices == 1 and record.time_s:
            runs[case_of(record)].append(record.time_s)
    lines = [f"device,precision,batch,measured_s,{','.join(_PREDICTORS)},in_interval"]
    ratios, inside = defaultdict(list), []
    for case in sorted(runs, key=str):
        try:
            workload, cluster = workload_of(case)
            said = {n: predictor(n).predict(workload, cluster).step_time_s for n in _PREDICTORS}
        except ForetellError as error:
            print(f"{case.cluster}: {error}")
            continue
        measured_s = float(np.median(runs[case]))
        for name, quantity in said.items():
            ratios[name].append(quantity.value / measured_s)
        inside.append(said["scaledl"].low <= measured_s <= said["scaledl"].high)
        shown = ",".join(f"{said[n].value:.4f}" for n in _PREDICTORS)
        lines.append(
            f"{case.cluster},{case.precision},{case.batch},{measured_s:.4f},{shown},{inside[-1]}"
        )
        print(lines[-1], " ".join(f"{ratios[n][-1]:.2f}" for n in _PREDICTORS), flush=True)
    for name, found in ratios.items():
        off = np.abs(np.array(found) - 1)
        print(
            f"{name:16} n {len(off)} mean {off.mean():.1%} median {np.median(off):.1%} "
            f"p90 {np.quantile(off, 0.9):.1%} max {off.max():.0%}"
        )
    print(f"in scaledl's 90 % interval: {np.mean(inside):.0%}")
    path = RESULTS / "many-devices.csv"
    path.write_text("\n".join(lines) + "\n")
    print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
