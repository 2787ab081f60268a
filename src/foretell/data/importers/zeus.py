"""Zeus' power traces: time of an epoch and power drawn, by batch size and power limit.

An epoch becomes steps where the number of samples in it is known beyond doubt:

    cifar100   50,000 training images (Krizhevsky, "Learning Multiple Layers of Features", 2009)
    imagenet   1,281,167 training images (Russakovsky et al., ILSVRC, 2015)

The others are rejected: movielens and squad count samples that are drawn or cut from the data set
in ways the traces do not tell, of librispeech and sentiment140 the part used is not told. A
forecast knows no power limit: it is in the environment, the lowered ones are slower. The card
behind "V100" has a limit of 250 W and trains ResNet-50 at batch 360 in fp32: a 32 GB PCIe card.
"""

from __future__ import annotations

from pathlib import Path

from foretell.data.importers.hardware import known_cluster, single_precision
from foretell.data.importers.rows import BadRowError, Row, csv_file, csv_table, each, rejected
from foretell.data.importers.source import Rows, Source, find
from foretell.data.record import Record

_POWER, _EPOCHS, _WINDOWS = "summary_power_*.csv", "summary_train.csv", "*+gpu*.csv"
_SAMPLES = {"cifar100": 50_000, "imagenet": 1_281_167}
_DEVICE = {"a40": "a40", "p100": "p100", "rtx6000": "quadro-rtx6000", "v100": "v100-32gb-pcie"}
# ShuffleNet was cut to fit small images; ResNet-50 is the usual one.
_MODEL = {"resnet50": "timm:resnet50"}
_MODEL_OPTIONS = {"resnet50": {"image_size": 224}}
_OPTIMIZERS = ("adam", "adamw")


def read(folder: Path) -> Rows:
    """Power traces, then what has no times of steps."""
    for path in find(folder, _POWER):
        gpu = path.name.removesuffix(".gz").removesuffix(".csv").rpartition("_")[2]
        yield from each(csv_file(folder, path), _record, gpu)
    yield from rejected(csv_table(folder, _EPOCHS), "epochs to a target, no time")
    windows = csv_table(folder, _WINDOWS)
    yield from rejected(windows, "how many steps the window holds is not told")


def _record(row: Row, gpu: str) -> Record:
    dataset, network = row.filled("dataset"), row.filled("network")
    if dataset not in _SAMPLES:
        raise BadRowError(f"how many samples an epoch of {dataset} has is not told")
    device, batch = _DEVICE.get(gpu, gpu), row.count("batch_size")
    optimizer = row.filled("optimizer")
    epoch_s = row.positive("time_per_epoch")
    return Record(
        model=_MODEL.get(network, network),
        cluster=known_cluster(device),
        device=device,
        batch=batch,
        options={
            "mode": "train",
            "precision": single_precision(device),
            **({"optimizer": optimizer} if optimizer in _OPTIMIZERS else {}),
            **_MODEL_OPTIONS.get(network, {}),
        },
        group=network,
        time_s=epoch_s * batch / _SAMPLES[dataset],
        metrics={"epoch_s": epoch_s, "average_power_w": row.positive("average_power")},
        source=SOURCE.name,
        origin=row.origin,
        environment={
            "dataset": dataset,
            "optimizer": optimizer,
            "power_limit_w": row.count("power_limit"),
        },
    )


SOURCE = Source(
    name="zeus",
    repository="https://github.com/ml-energy/zeus",
    commit="75a8b9398034eb9baf74ca0a830c2c31bcce52cd",
    licence="Apache-2.0",
    use="fit",
    files=(_POWER, _EPOCHS, _WINDOWS),
    read=read,
)
