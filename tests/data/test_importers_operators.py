"""Importers of operators, collectives and steps: every row is taken, or rejected for a reason."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.sources import folder_of
from foretell.api import Case
from foretell.cluster import parse_cluster
from foretell.data import Record
from foretell.data.importers import NAMES, Tally, records_of, source
from foretell.errors import InputError
from foretell.graph.sources.op_shape import parse_op

# Of the largest sources only these files are read, to be quick.
PARTS = {
    "neusight": (
        "data/dataset_amd/train/elem.csv.gz",
        "data/dataset_amd/train/ln.csv.gz",
        "data/dataset_amd/train/softmax.csv.gz",
        "data/dataset_amd/train/vec.csv.gz",
        "data/dataset/train/collect/conv/p2.1.0/Tesla_P4.csv.gz",
    ),
    "aiconfigurator": (
        "gemm/a100_sxm_gemm_vllm_0.14.0_gemm_perf.parquet",
        "nccl/b60_comm_oneccl_2021.17.2_oneccl_perf.parquet",
        "nccl/h100_sxm_comm_nccl_2.23_nccl_perf.parquet",
    ),
    "vidur": (
        "compute/a40/microsoft/phi-2/mlp.csv.gz",
        "compute/a40/meta-llama/Llama-2-7b-hf/mlp.csv.gz",
        "network/a100_pairwise_nvlink/send_recv.csv.gz",
        "network/h100_pairwise_nvlink/send_recv.csv.gz",
        "network/h100_pairwise_nvlink/all_reduce.csv.gz",
    ),
}
KEPT = {
    "timm": 32277,
    "neusight": 9498,
    "aiconfigurator": 9834,
    "vidur": 261 * 7 + 1044 * 8 - 783 + 2 * 1988,
    "pipedream": 3743,
    "gavel": 489,
    "shockwave": 407,
    "zeus": 596,
    "nvidia_deeplearningexamples": 388,
    "lambda_dl_benchmark": 3898,
    "gpumemnet": 3000,
}
OWN = tuple(KEPT)
REJECTED: dict[str, dict[str, int]] = {
    "timm": {
        "the name stands for another architecture in timm today": 42,
        "infer_step_time is empty": 1,
    },
    "neusight": {
        "repeats a row of data/dataset_amd/train/elem.csv.gz": 3300,
        "repeats a row of data/dataset_amd/train/ln.csv.gz": 602,
        "repeats a row of data/dataset_amd/train/softmax.csv.gz": 600,
    },
    "aiconfigurator": {},
    "vidur": {
        "rotary positions, which no operator describes": 261 + 1044,
        "a gated activation in one kernel, which no operator describes": 1044,
        "a split embedding also masks, which no operator describes": 783,
        "a sum of three, which no operator describes": 261,
        "repeats a100_pairwise_nvlink, digit for digit": 1988,
    },
    "pipedream": {
        "a layer without time of its own": 561,
        "the time of loading data, not of a layer": 18,
    },
    "gavel": {
        "two jobs share a GPU": 20694,
        "repeats physical_cluster_throughputs.json": 419,
        "a job on one GPU cannot be spread: repeats the packed entry": 78,
        "units and batches are not told": 37,
        "no steps per second: the job does not run there": 4,
    },
    "shockwave": {
        "two jobs share a GPU": 10338,
        "a job on one GPU cannot be spread: repeats the packed entry": 78,
        "no steps per second: the job does not run there": 7,
    },
    "zeus": {
        "epochs to a target, no time": 3759,
        "how many samples an epoch of movielens-1m has is not told": 384,
        "how many samples an epoch of librispeech has is not told": 301,
        "how many samples an epoch of squad has is not told": 199,
        "how many samples an epoch of sentiment140 has is not told": 129,
        "how many steps the window holds is not told": 96,
    },
    "nvidia_deeplearningexamples": {
        "not under a heading of training performance": 2324,
        "no throughput whose unit is told": 375,
        "the batch of one GPU is not told": 102,
        "throughput does not count samples": 132,
        "the device is not told": 3,
    },
    "lambda_dl_benchmark": {
        "neither throughput nor memory of a busy device": 1070,
        "throughput of gnmt does not count samples, and there is no memory": 662,
        "throughput of tacotron2 does not count samples, and there is no memory": 656,
        "throughput of ncf does not count samples, and there is no memory": 650,
        "throughput of waveglow does not count samples, and there is no memory": 645,
        "throughput of transformerxlbase does not count samples, and there is no memory": 142,
        "the batch is not told, and there is no memory of a busy device": 139,
        "throughput of transformerxllarge does not count samples, and there is no memory": 128,
    },
    "gpumemnet": {},
}


def published(name: str, tmp_path: Path) -> Path:
    """The folder of a source, or a part of it; skips where the measurements are not."""
    folder = folder_of(name)
    if folder is None:
        pytest.skip(f"the measurements of {name} are not here: set FORETELL_DATA")
    if name not in PARTS:
        return folder
    for file in PARTS[name]:
        link = tmp_path / file
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(folder / file)
    return tmp_path


def read(name: str, folder: Path) -> tuple[list[Record], Tally]:
    tally = Tally()
    records = list(records_of(name, folder, tally))
    assert tally.kept == len(records)
    return records, tally


@pytest.mark.parametrize("name", OWN)
def test_every_published_row_is_kept_or_rejected_by_reason(name: str, tmp_path: Path) -> None:
    records, tally = read(name, published(name, tmp_path))
    assert (tally.kept, dict(tally.reasons())) == (KEPT[name], REJECTED[name])
    assert tally.read == KEPT[name] + sum(REJECTED[name].values())
    for record in records:
        assert record.source == name
        assert record.group
        assert record.origin
    assert len({record.origin for record in records}) == len(records)


@pytest.mark.parametrize("name", OWN)
def test_reading_twice_gives_the_same_ids(name: str, tmp_path: Path) -> None:
    folder = published(name, tmp_path)
    first = [record.id for record in records_of(name, folder)]
    assert first == [record.id for record in records_of(name, folder)]
    assert len(set(first)) == len(first)


@pytest.mark.parametrize("name", OWN)
def test_what_is_kept_is_a_case_that_can_be_asked(name: str, tmp_path: Path) -> None:
    records, _ = read(name, published(name, tmp_path))
    for cluster in {record.cluster for record in records} - {""}:
        parse_cluster(cluster)
    for model in {record.model for record in records if record.model.startswith("op:")}:
        parse_op(model.removeprefix("op:"))
    asked = {json.dumps(r.case_options(), sort_keys=True) for r in records if r.kind == "step"}
    for options in sorted(asked)[:2000]:
        Case.from_mapping(json.loads(options))


def test_the_sources_are_registered_under_their_own_names() -> None:
    assert set(OWN) <= set(NAMES)
    for name in OWN:
        found = source(name)
        assert found.name == name
        assert found.use in ("fit", "check")
        assert found.licence
        assert len(found.commit) == 40


TIMM_HEADER = (
    "model,train_samples_per_sec,train_step_time,train_batch_size,train_img_size,param_count\n"
)
NEUSIGHT_HEADER = "OPName,Latency,Device,Torch Version,B,M,N,K\n"
GRAPH = (
    "node1 -- Input -- forward_compute_time=5.0, backward_compute_time=0.0, "
    "activation_size=4816896.0, parameter_size=0.0\n"
    "node2 -- Conv2d(3, 64, kernel_size=(3, 3), stride=(2, 2), padding=(1, 1)) -- "
    "forward_compute_time=2.0, backward_compute_time=4.0, activation_size=25690112.0, "
    "parameter_size=6912.0\n"
    "node3 -- Strange(7) -- forward_compute_time=1.0, backward_compute_time=0.0, "
    "activation_size=32.0, parameter_size=0.0\n"
    "node4 -- Linear(in_features=64, out_features=10, bias=True) -- forward_compute_time=0.5, "
    "backward_compute_time=0.5, activation_size=320.0, parameter_size=2600.0\n"
    "node5 -- ReLU() -- forward_compute_time=x, backward_compute_time=1.0, "
    "activation_size=320.0, parameter_size=0.0\n"
    "what is this\n"
    "\tnode1 -- node2\n"
)
MLP = {
    **{f"time_stats.{op}.median": "0.5" for op in ("emb", "attn_pre_proj", "attn_rope")},
    **{f"time_stats.{op}.median": "0.5" for op in ("attn_post_proj", "mlp_up_proj", "mlp_act")},
    **{f"time_stats.{op}.median": "0.5" for op in ("mlp_down_proj", "input_layernorm", "add")},
    "time_stats.post_attention_layernorm.median": "0.5",
    "n_head": "32",
    "n_kv_head": "8",
    "n_embd": "4096",
    "n_expanded_embd": "11008",
    "vocab_size": "32768",
    "use_gated_mlp": "True",
    "num_tokens": "64",
    "num_tensor_parallel_workers": "2",
}
COLLECTIVE_HEADER = (
    "time_stats.send_recv.median,rank,num_workers,size,collective,devices_per_node,"
    "max_devices_per_node\n"
)
GAVEL = {
    "v100": {
        "('LM (batch size 5)', 1)": {"null": 10.0, "('A3C', 1)": [1.0, 2.0]},
        "('LM (batch size 5)', 2)": {"null": 25.0},
        "('ResNet-50 (batch size 16)', 1)": {"null": 0.0},
        "nonsense": {"null": 3.0},
        "('A3C', 1)": {"null": "fast"},
    },
    "v100_unconsolidated": {
        "('LM (batch size 5)', 1)": {"null": 10.0},
        "('LM (batch size 5)', 2)": {"null": 8.0},
    },
}
LAMBDA_HEADER = (
    "results_dir,system,task,timestamp,num_gpu_from_name,raw_line,throughput,batch_size_in_log,"
    "mon_samples,mem_max_MiB,util_mean_active,para\n"
)
TRAINING = "X > Training performance: NVIDIA DGX A100 (8x A100 80GB)"


def example(section: str = TRAINING, folder: str = "PyTorch/A/B", **row: str) -> str:
    """A line of readme_tables.jsonl; underscores in names stand for blanks."""
    cells = {name.replace("_", " "): value for name, value in row.items()}
    return json.dumps({"file": f"{folder}/README.md", "section": section, "row": cells}) + "\n"


# Source -> files in upstream's layout, models that are kept, reasons for which rows are not.
MADE_UP: dict[str, tuple[Mapping[str, str | bytes], list[str], list[str]]] = {
    "timm": (
        {
            "results/benchmark-train-amp-nhwc-pt112-cu113-rtx3090.csv": TIMM_HEADER
            + "resnet50.a1_in1k,400,320,128,224,25.56\n"
            + "ig_resnext101_32x16d,400,320,128,224,25.56\n"
            + "resnet18,fast,320,128,224,11.69\n"
            + "resnet34,400,,128,224,21.8\n"
            + "resnet26,400\n",
            "results/benchmark-train-amp-nchw-pt112-cu113-rtx3090.csv": "",
            "results/benchmark-infer-odd.csv": "model\nresnet18\n",
            "results/results-imagenet.csv": "model,top1\nresnet50,80\n",
        },
        ["timm:resnet50"],
        [
            "the name stands for another architecture in timm today",
            "train_samples_per_sec is not a number",
            "train_step_time is empty",
            "fewer cells than columns",
            "file holds no rows",
            "the file's name does not say how it was measured",
        ],
    ),
    "neusight": (
        {
            "scripts/asplos/data/dataset/train/collect/bmm/p2.1.0/Tesla T4.csv": NEUSIGHT_HEADER
            + "bmm,0.5,Tesla T4,p2.1.0,4,16,32,8\n"
            + "linear,0.25,Tesla T4,p2.1.0,1,64,32,8\n"
            + "bmm,0.5,Tesla T4,p2.1.0,4,16,32,8\n"
            + "bmm,0,Tesla T4,p2.1.0,4,16,32,9\n"
            + "bmm,0.5,Tesla T4,p2.1.0,4,16,3.5,8\n"
            + "fold,0.5,Tesla T4,p2.1.0,4,16,3,8\n",
            "scripts/asplos/data/dataset/train/elem.csv": "OPName,Latency,Device,B,H\n"
            "div,0.1,Tesla T4,8,64\n",
            "scripts/asplos/data/dataset/dims/train_bmm.csv": "B,M,N,K\n1,2,3,4\n",
            "scripts/asplos/label/NVIDIA_H100_80GB_HBM3/gpt2_large-train-1024-16-dp4.json": (
                '{"num_layer": 0, "e2e_latency": 80.0, "fw_latency": 0, "bwall_latency": 0}'
            ),
            "scripts/asplos/label/NVIDIA_L4/bert_large-inf-512-8.json": (
                '{"num_layer": 24, "e2e_latency": 9.0, "fw_latency": 9.0, "bwall_latency": 0}'
            ),
            "scripts/asplos/label/NVIDIA_L4/opt_13-train-2048-1.json": '{"e2e_latency": 9.0}',
            "scripts/asplos/label/NVIDIA_L4/odd.json": "{}",
            "scripts/asplos/label/NVIDIA_L4/gpt2_xl-inf-1024-1.json": "not json",
            "scripts/asplos/summary/distributed.csv": ",,,A100x4,,,H100x4,,,\n"
            ",Global batch size,,DP,TP,PP,DP,TP,PP,\n"
            "GPT2-Large,16,Measured Latency (ms),90.0,70.0,,80.0,60.0,50.0,\n"
            ",,NeuSight Prediction (ms),91.0 (1.1%),,,,,,\n",
        },
        [
            "op:bmm,m=16,n=32,k=8",
            "op:linear,in=8,out=32",
            "div,width=64",
            "hf:openai-community/gpt2-large",
            "bert_large",
            *["hf:openai-community/gpt2-large"] * 4,
        ],
        [
            "Latency is not above zero",
            "N is not a whole number",
            "OPName is not known",
            "column 'fw_latency' is missing",
            "the file's name does not say what was measured",
            "file is not JSON",
            "e2e_latency is empty",
            "repeats a label file",
            "repeats a row of scripts/asplos/data/dataset/train/collect/bmm/p2.1.0/Tesla T4.csv",
            *["a prediction of upstream, not a measurement"] * 6,
        ],
    ),
    "vidur": (
        {
            "data/profiling/compute/h100/meta-llama/Llama-3/mlp.csv": ",".join(MLP)
            + "\n"
            + ",".join(MLP.values())
            + "\n",
            "data/profiling/compute/h100/meta-llama/Empty/mlp.csv": "",
            "data/profiling/network/a100_dgx/send_recv.csv": COLLECTIVE_HEADER
            + "0.1,0,2,2048,send_recv,2,8\n"
            + "0.2,0,2,4096,send_recv,1,8\n"
            + "0.1,0,3,2048,send_recv,2,8\n"
            + "0.1,0,2,2048,gossip,2,8\n"
            + "soon,0,2,2048,send_recv,2,8\n",
            "data/profiling/network/h100_dgx/send_recv.csv": COLLECTIVE_HEADER
            + "0.1,0,2,2048,send_recv,2,8\n",
        },
        [
            "op:rms_norm,width=4096",
            "op:linear,in=4096,out=3072",
            "op:linear,in=2048,out=4096",
            "op:rms_norm,width=4096",
            "op:linear,in=4096,out=11008",
            "op:linear,in=5504,out=4096",
            "op:add,width=4096",
            "collective:send_recv",
            "collective:send_recv",
        ],
        [
            "a split embedding also masks, which no operator describes",
            "rotary positions, which no operator describes",
            "a gated activation in one kernel, which no operator describes",
            "file holds no rows",
            "the nodes do not share the workers evenly",
            "the collective is not known",
            "time_stats.send_recv.median is not a number",
            "repeats a100_dgx, digit for digit",
        ],
    ),
    "pipedream": (
        {
            "profiler/image_classification/profiles/tiny/graph.txt": GRAPH,
            "profiler/image_classification/profiles/none/graph.txt": "",
        },
        ["op:conv2d,in=3,out=64,size=224,stride=2", "Strange(7)", "op:linear,in=64,out=10"],
        [
            "the time of loading data, not of a layer",
            "a time or a size is not a number",
            "the line is neither a layer nor an edge",
            "file holds no rows",
        ],
    ),
    "gavel": (
        {
            "scheduler/simulation_throughputs.json": json.dumps(GAVEL),
            "scheduler/physical_cluster_throughputs.json": "{",
            "perf_prediction/measurements.csv": "K80,,\nAlexNet,520.96,\n",
        },
        ["LM", "LM", "LM"],
        [
            "two jobs share a GPU",
            "no steps per second: the job does not run there",
            "the job's name is not understood",
            "steps per second is not a number",
            "a job on one GPU cannot be spread: repeats the packed entry",
            "file is not JSON",
            *["units and batches are not told"] * 2,
        ],
    ),
    "shockwave": (
        {"scheduler/actual_throughputs.json": json.dumps({"k80": GAVEL["v100"]})},
        ["LM", "LM"],
        [
            "two jobs share a GPU",
            "no steps per second: the job does not run there",
            "the job's name is not understood",
            "steps per second is not a number",
        ],
    ),
    "zeus": (
        {
            "trace/summary_power_v100.csv": "dataset,network,batch_size,optimizer,power_limit,"
            "time_per_epoch,average_power\n"
            "imagenet,resnet50,256,adadelta,250,5004.6,220\n"
            "squad,bert_base_uncased,8,adamw,250,100,200\n"
            "cifar100,shufflenetv2,0,adam,250,10,90\n"
            "cifar100,shufflenetv2,8,adam,250\n",
            "trace/summary_train.csv": "dataset,network\ncifar100,shufflenetv2\n",
            "tests/profile_data/A40+resnet18+gpu0.csv": "start_time,elapsed_time\n1,2\n",
        },
        ["timm:resnet50"],
        [
            "how many samples an epoch of squad has is not told",
            "batch_size is not at least 1",
            "fewer cells than columns",
            "epochs to a target, no time",
            "how many steps the window holds is not told",
        ],
    ),
    "nvidia_deeplearningexamples": (
        {
            "readme_tables.jsonl": example(
                GPUs="8",
                **{
                    "Batch size / GPU (TF32 and FP16)": "128 and 256",
                    "Accumulated Batch size / GPU (TF32 and FP16)": "8192 and 8192",
                    "Accumulation steps (TF32 and FP16)": "64 and 32",
                    "Sequence length": "128",
                    "Throughput - TF32(sequences/sec)": "3,200",
                    "Throughput - mixed precision(sequences/sec)": "6.4k",
                },
            )
            + example(GPUs="1", **{"Throughput - TF32": "100 img/s"})
            + example(GPUs="1", **{"Batch size / GPU": "8", "Throughput - TF32 (tok/s)": "100"})
            + example(GPUs="1", **{"Batch size / GPU": "8", "Throughput - TF32": "100"})
            + example(GPUs="1", **{"Batch size / GPU": "8", "Throughput - TF32 [img/s]": ""})
            + example(**{"Batch size / GPU": "8", "Throughput - BF16 [img/s]": "5", "GPUs": "1"})
            + example("X > Inference performance", Batch="8", Throughput="100 img/s")
            + "[]\n",
        },
        ["PyTorch/A/B", "PyTorch/A/B"],
        [
            "the batch of one GPU is not told",
            "throughput does not count samples",
            "no throughput whose unit is told",
            "throughput is empty",
            "precision is not told",
            "not under a heading of training performance",
            "the line is not a row of a table",
        ],
    ),
    "lambda_dl_benchmark": (
        {
            "runs_extracted.csv": LAMBDA_HEADER
            + "r,2x3080,PyTorch_resnet50_AMP,03-03-2020_18-45-27,2,l,1000,128,40,9000,97,\n"
            + "r,p3.8xlarge,PyTorch_gnmt_FP32,03-03-2020_18-45-27,1,l,900,32,40,15000,97,\n"
            + "r,A100_80GB_SXM4,PyTorch_SSD_AMP,,1,l,400,,,,,GLOBAL_BATCH 64 GPU 1\n"
            + "r,A100_80GB_SXM4,PyTorch_SSD_AMP,,1,l,400,,,3,0,\n"
            + "r,A100_80GB_SXM4,PyTorch_SSD_AMP,,1,l,,64,,,,\n"
            + "r,A100_80GB_SXM4,PyTorch_gnmt_FP16,,1,l,400,64,,,,\n"
            + "r,A100_80GB_SXM4,Else,,1,l,400,64,,,,\n"
            + "r,A100_80GB_SXM4,PyTorch_resnet50_FP32,,many,l,400,64,,,,\n",
        },
        ["timm:resnet50", "gnmt", "SSD"],
        [
            "the batch is not told, and there is no memory of a busy device",
            "neither throughput nor memory of a busy device",
            "throughput of gnmt does not count samples, and there is no memory",
            "the task is not known",
            "num_gpu_from_name is not a number",
        ],
    ),
    "gpumemnet": (
        {
            "Datasets/MLP/mlp_data_step2.csv": "Filename,Activations-Params,Batch Size,"
            "Total Parameters,Max GPU Memory (MiB)\n"
            "input:8_batch:4_act:relu.out,[],4,100,1500\n"
            "input:8_batch:4_act:relu.out,[],4,100,0\n"
            "input:8_batch:4_act:relu.out,[],4\n",
        },
        ["input:8_batch:4_act:relu"],
        ["Max GPU Memory (MiB) is not above zero", "fewer cells than columns"],
    ),
}


def write(folder: Path, files: Mapping[str, str | bytes]) -> None:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())


@pytest.mark.parametrize("name", MADE_UP)
def test_a_broken_row_is_rejected_and_the_rest_is_kept(name: str, tmp_path: Path) -> None:
    files, models, reasons = MADE_UP[name]
    write(tmp_path, files)
    records, tally = read(name, tmp_path)
    assert [record.model for record in records] == models
    assert sorted(reject.reason for reject in tally.rejects) == sorted(reasons)
    assert len({row.origin for row in (*records, *tally.rejects)}) == tally.read


@pytest.mark.parametrize("name", MADE_UP)
def test_gzipped_files_hold_the_same_rows(name: str, tmp_path: Path) -> None:
    files, models, _ = MADE_UP[name]
    packed = {f"{file}.gz": gzip.compress(str(text).encode()) for file, text in files.items()}
    write(tmp_path, packed)
    records, _ = read(name, tmp_path)
    assert [record.model for record in records] == models


@pytest.mark.parametrize("name", MADE_UP)
def test_a_file_cut_off_is_one_reject(name: str, tmp_path: Path) -> None:
    files, _, _ = MADE_UP[name]
    file, text = next(iter(files.items()))
    whole = gzip.compress(str(text).encode() * 200)
    write(tmp_path, {f"{file}.gz": whole[: len(whole) // 2]})
    _, tally = read(name, tmp_path)
    assert "file cannot be read further (EOFError)" in tally.reasons()


def test_products_and_collectives_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    base = tmp_path / "systems" / "data"
    gemms = {
        "gemm_dtype": ["bfloat16", "fp8", "nvfp4", "bfloat16", "bfloat16"],
        "m": [16, 32, 64, 0, 8],
        "n": [128, 128, 128, 128, 128],
        "k": [64, 64, 64, 64, 64],
        "latency": [0.5, 0.25, 0.25, 0.25, None],
    }
    collectives = {
        "nccl_dtype": ["half", "int8", "half"],
        "num_gpus": [8, 4, 8],
        "message_size": [1024, 1024, 1024],
        "op_name": ["all_reduce", "alltoall", "gossip"],
        "latency": [0.02, 0.04, 0.01],
    }
    tables = {
        "h100_sxm/vllm/0.24.0/gemm_perf.parquet": pa.table(gemms),
        "h100_sxm/nccl/2.27.3/nccl_perf.parquet": pa.table(collectives),
        "b60/oneccl/2021.17.2/oneccl_perf.parquet": pa.table(collectives).slice(0, 1),
        "z80/vllm/1/gemm_perf.parquet": pa.table(gemms).slice(0, 1),
        "l40s/vllm/1/gemm_perf.parquet": pa.table(gemms).drop_columns(["m"]).slice(0, 1),
        "gb200/vllm/1/gemm_perf.parquet": pa.table(gemms).slice(0, 0),
    }
    for name, table in tables.items():
        (base / name).parent.mkdir(parents=True)
        pq.write_table(table, base / name)
    (base / "broken").mkdir()
    (base / "broken" / "gemm_perf.parquet").write_bytes(b"PAR1")
    records, tally = read("aiconfigurator", tmp_path)
    found = {(r.model, r.device, r.devices, r.batch, r.time_s) for r in records}
    assert found == {
        ("op:linear,in=64,out=128", "h100-sxm", 1, 16, 0.0005),
        ("op:linear,in=64,out=128", "h100-sxm", 1, 32, 0.00025),
        ("collective:all_reduce", "h100-sxm", 8, None, 0.00002),
        ("collective:all_to_all", "h100-sxm", 4, None, 0.00004),
        ("collective:all_reduce", "b60", 8, None, 0.00002),
    }
    assert dict(tally.reasons()) == {
        "number format nvfp4 is none that a forecast knows": 1,
        "a size is not a whole number above zero": 1,
        "latency is not above zero": 1,
        "collective gossip is not known": 1,
        "the device is not told": 1,
        "column 'm' is missing": 1,
        "file holds no rows": 1,
        "file cannot be read further (ArrowInvalid)": 1,
    }
    reduced = next(r for r in records if r.device == "h100-sxm" and r.devices == 8)
    assert reduced.options == {"nbytes": 2048, "dtype": "fp16"}
    assert reduced.environment == {"library": "nccl", "version": "2.27.3"}
    assert {r.cluster for r in records} == {"h100-sxm", "8xh100-sxm", "4xh100-sxm", ""}


def made_up(name: str, tmp_path: Path) -> list[Record]:
    write(tmp_path, MADE_UP[name][0])
    return read(name, tmp_path)[0]


def test_a_timm_row_says_how_it_was_measured(tmp_path: Path) -> None:
    (row,) = made_up("timm", tmp_path)
    assert row.time_s == pytest.approx(128 / 400)
    assert (row.device, row.cluster, row.batch, row.group) == (
        "rtx3090",
        "rtx3090",
        128,
        "resnet50",
    )
    assert row.options == {
        "mode": "train",
        "precision": "amp-fp16",
        "channels_last": True,
        "torch_version": "1.12",
        "optimizer": "momentum",
        "image_size": 224,
    }
    assert row.metrics["parameters"] == 25_560_000
    assert row.environment == {"name": "resnet50.a1_in1k"}


def test_a_rate_of_several_workers_is_the_sum_of_theirs(tmp_path: Path) -> None:
    alone, packed, spread = made_up("gavel", tmp_path)
    assert (alone.devices, alone.time_s, alone.cluster) == (1, 0.1, "v100-16gb")
    assert (packed.devices, packed.nodes, packed.time_s) == (2, 1, 2 / 25)
    assert packed.metrics == {"steps_per_s": 25.0, "speedup": 2.5, "superlinear": 1.0}
    assert (spread.devices, spread.nodes, spread.cluster) == (2, 2, "")
    assert "superlinear" not in spread.metrics


def test_jobs_on_four_devices_say_their_parallelism(tmp_path: Path) -> None:
    steps = [r for r in made_up("neusight", tmp_path) if r.devices == 4]
    label = steps[0]
    assert (label.cluster, label.batch, label.time_s) == ("4xh100-sxm", 4, 0.08)
    assert label.options["global_batch"] == 16
    assert label.options["optimizer"] == "none"
    assert (label.forward_s, label.backward_s) == (None, None)
    by_option = {(r.device, r.options.get("tp"), r.options.get("pp")): r for r in steps[1:]}
    assert by_option["a100-40gb", None, None].batch == 4
    assert by_option["h100-sxm", 4, None].batch == 16
    assert by_option["h100-sxm", None, 4].time_s == 0.05


def test_gradient_accumulation_in_a_table_makes_the_step_longer(tmp_path: Path) -> None:
    single, mixed = made_up("nvidia_deeplearningexamples", tmp_path)
    assert (single.batch, single.options["global_batch"]) == (128, 128 * 64 * 8)
    assert single.time_s == pytest.approx(128 * 64 * 8 / 3200)
    assert (mixed.batch, mixed.options["precision"]) == (256, "amp-fp16")
    assert mixed.time_s == pytest.approx(256 * 32 * 8 / 6400)


def test_networks_that_are_timms_have_the_batch_of_their_configuration(tmp_path: Path) -> None:
    line = example(
        folder="PyTorch/Classification/ConvNets/resnet50v1.5",
        GPUs="1",
        **{"Throughput - TF32": "1,000 img/s", "Throughput - mixed precision": "2000 img/s"},
    )
    (tmp_path / "readme_tables.jsonl").write_text(line)
    single, mixed = records_of("nvidia_deeplearningexamples", tmp_path)
    assert (single.model, mixed.model) == ("timm:resnet50", "timm:resnet50")
    assert (single.batch, single.time_s) == (256, pytest.approx(0.256))
    assert "channels_last" not in single.options
    assert mixed.options["channels_last"]
    assert mixed.time_s == pytest.approx(0.128)


def test_an_epoch_becomes_steps_of_its_batch(tmp_path: Path) -> None:
    (row,) = made_up("zeus", tmp_path)
    assert row.time_s == pytest.approx(5004.6 * 256 / 1_281_167)
    assert row.environment["power_limit_w"] == 250


def test_a_layer_that_follows_itself_keeps_its_text(tmp_path: Path) -> None:
    pool = "MaxPool2d(kernel_size=3, stride=2, padding=1)"
    times = "forward_compute_time=1.0, backward_compute_time=1.0"
    layer = f"node1 -- {pool} -- {times}, activation_size=64.0, parameter_size=0.0\n"
    linear = "Linear(in_features=4, out_features=4, bias=True)"
    last = f"node2 -- {linear} -- {times}, activation_size=16.0, parameter_size=0.0\n"
    write(tmp_path, {"graph.txt": layer + last + "\tnode1 -- node1\n"})
    records, _ = read("pipedream", tmp_path)
    assert [record.model for record in records] == [pool, "op:linear,in=4,out=4"]


def test_memory_alone_makes_a_record(tmp_path: Path) -> None:
    (row,) = made_up("gpumemnet", tmp_path)
    assert (row.time_s, row.resident_bytes) == (None, 1500 * 2**20)
    assert row.ok
    assert row.group == "input:8_act:relu"


@pytest.mark.parametrize(
    "measured",
    [{}, {"time_s": 0.0}, {"time_s": float("nan")}, {"time_s": 1.0, "resident_bytes": -1.0}],
)
def test_a_run_without_a_positive_measurement_is_refused(measured: dict[str, float]) -> None:
    with pytest.raises(InputError, match=r"positive|neither time nor memory"):
        Record(model="timm:resnet18", source="foretell", **measured)  # type: ignore[arg-type]


def test_a_folder_without_the_sources_files_is_refused_with_what_it_looks_for(
    tmp_path: Path,
) -> None:
    for name in OWN:
        with pytest.raises(InputError, match="holds no rows"):
            list(records_of(name, tmp_path))
    with pytest.raises(InputError, match=r"github\.com/huggingface"):
        list(records_of("timm", tmp_path / "nowhere"))
