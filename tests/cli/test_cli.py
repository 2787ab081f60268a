"""The command line: output, exit codes, one clear sentence for every mistake."""

from __future__ import annotations

import dataclasses
import inspect
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from foretell.api import Case, workload_of
from foretell.cli import app, main
from foretell.cli.predict import predict
from foretell.cli.show import show_forecast
from foretell.predictors import predictor

COMMAND = [sys.executable, "-c", "from foretell.cli import main; main()"]


def run(
    *args: str, cwd: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *args],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=120,
        env={**os.environ, **environment},
    )


def test_predict_options_are_the_fields_of_a_case() -> None:
    outside = {"context", "max_batch", "json_output", "trace", "cases", "out", "launch_file"}
    assert set(inspect.signature(predict).parameters) - outside == {
        f.name for f in dataclasses.fields(Case)
    }


def test_a_forecast_is_printed_for_people() -> None:
    done = run("predict", "timm:resnet18", "--batch", "32", "--cluster", "a100-40gb")
    assert done.returncode == 0, done.stderr
    for words in ("step time", "90 % interval", "fits in", "saved activations", "backward"):
        assert words in done.stdout


def test_json_is_one_object_on_stdout_with_the_largest_batch_when_asked() -> None:
    done = run("predict", "timm:resnet18", "--json", "--max-batch", "--cluster", "t4")
    answer = json.loads(done.stdout)
    assert answer["fits"] is True
    assert answer["max_batch"] > 32
    assert answer["subject"]["batch"] == answer["max_batch"]


def test_the_largest_batch_that_divides_the_global_batch_is_forecast() -> None:
    args = ["predict", "timm:resnet50", "--cluster", "2xt4", "--global-batch", "720", "--max-batch"]
    answer = json.loads(run(*args, "--json").stdout)
    assert answer["fits"] is True
    assert answer["subject"]["batch"] == answer["max_batch"]
    assert answer["subject"]["global_batch"] == 720
    assert answer["max_batch"] < 360
    assert 360 % answer["max_batch"] == 0
    given = json.loads(run(*args, "--batch", "10", "--json").stdout)
    assert given["subject"]["batch"] == 10
    assert given["max_batch"] == answer["max_batch"]


def test_a_trace_holds_every_operator(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    done = run("predict", "timm:resnet18", "--batch", "8", "--trace", str(path))
    assert done.returncode == 0, done.stderr
    events = json.loads(path.read_text())["traceEvents"]
    slices = [e for e in events if e["ph"] == "X" and e["tid"] == 1]
    assert sum(e["name"] == "convolution" for e in slices) == 20
    ends = [e["ts"] + e["dur"] for e in slices]
    assert all(e["ts"] >= end - 1e-6 for e, end in zip(slices[1:], ends[:-1], strict=True))


def test_a_user_module_and_a_package_function_are_captured(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import torch\n"
        "def build():\n"
        "    return torch.nn.Sequential(torch.nn.Linear(8, 4)), torch.rand(2, 8)\n"
    )
    done = run("predict", "mine.py:build", "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["subject"]["parameters"] == 36, done.stderr


def test_cases_write_a_file_in_order(tmp_path: Path) -> None:
    cases = tmp_path / "cases.jsonl"
    cases.write_text('{"model": "timm:resnet18"}\n{"model": "timm:nothing"}\n')
    out = tmp_path / "out.jsonl"
    done = run("predict", "--cases", str(cases), "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert "1 answered, 1 failed" in done.stdout
    first, second = (json.loads(line) for line in out.read_text().splitlines())
    assert first["step_time_s"]
    assert "nothing" in second["error"]


def test_devices_can_be_searched_and_models_listed() -> None:
    assert "a100-80gb-pcie" in run("devices", "a100").stdout
    ids = {d["id"] for d in json.loads(run("devices", "--json").stdout)}
    assert {"h100-sxm", "mi300x", "t4", "cpu"} <= ids
    assert "hf:meta-llama/Llama-3.1-8B" in run("models", "llama-3.1").stdout


BAD_CALLS = {
    "no model": (["predict"], "no model given"),
    "unknown scheme": (["predict", "resnet50"], "timm:NAME"),
    "unknown timm name": (["predict", "timm:resnet51"], "resnet50"),
    "unknown hf name": (["predict", "hf:gpt5"], "unknown Hugging Face model"),
    "unknown cluster": (["predict", "timm:resnet18", "--cluster", "a1000"], "a1000"),
    "missing cluster file": (["predict", "timm:resnet18", "--cluster", "no.toml"], "no.toml"),
    "bad precision": (["predict", "timm:resnet18", "--precision", "fp17"], "fp17"),
    "bad optimizer": (["predict", "timm:resnet18", "--optimizer", "adamm"], "adam"),
    "zero batch": (["predict", "timm:resnet18", "--batch", "0"], "batch=0"),
    "epochs alone": (["predict", "timm:resnet18", "--epochs", "3"], "samples"),
    "two lengths": (["predict", "timm:resnet18", "--steps", "3", "--tokens", "1e6"], "one of them"),
    "tokens of images": (["predict", "timm:resnet18", "--tokens", "1e6"], "sequences"),
    "bad seq": (["predict", "hf:gpt2", "--seq", "99999"], "1024"),
    "missing file": (["predict", "nowhere.py:f"], "nowhere.py"),
    "missing function": (["predict", "json:nothing"], "nothing"),
    "cases without out": (["predict", "--cases", "x.jsonl"], "--out"),
    "output without a name": (["predict", "--cases", __file__, "--out", ""], "not a regular file"),
    "missing cases": (["predict", "--cases", "x.jsonl", "--out", "y"], "x.jsonl"),
    "bad transformer": (["predict", "transformer:layers=2"], "hidden"),
    "heads": (
        ["predict", "transformer:layers=2,hidden=10,heads=3,seq=8,vocab=9"],
        "not divisible",
    ),
    "unknown module": (["predict", "timm:resnet18", "--recompute", "nope"], "nope"),
    "unknown device": (["devices", "zx81"], "zx81"),
    "letters": (["predict", "timm:resnet18", "--batch", "x"], "'--batch': 'x' is not a number"),
    "half a sample": (["predict", "timm:resnet18", "--batch", "1.5"], "'1.5' is not a whole"),
    "unknown option": (["predict", "timm:resnet18", "--btach", "1"], "--btach"),
    "option without value": (["predict", "timm:resnet18", "--batch"], "--batch"),
    "unknown verb": (["preidct"], "Did you mean 'predict'"),
    "two models": (["predict", "timm:resnet18", "timm:resnet34"], "timm:resnet34"),
    "batch beside cases": (["predict", "--cases", "x", "--out", "y", "--batch", "8"], "--batch"),
    "default beside cases": (
        ["predict", "--cases", "x", "--out", "y", "--precision", "fp32"],
        "--precision",
    ),
    "max batch beside cases": (
        ["predict", "--cases", "x", "--out", "y", "--max-batch"],
        "--max-batch",
    ),
    "trace beside cases": (["predict", "--cases", "x", "--out", "y", "--trace", "t"], "--trace"),
    "json beside cases": (["predict", "--cases", "x", "--out", "y", "--json"], "--json"),
    "model beside cases": (["predict", "m", "--cases", "x", "--out", "y"], "model argument"),
    "bad torch": (["predict", "timm:resnet18", "--torch-version", "new"], "version"),
    "split batch": (
        ["predict", "timm:resnet18", "--global-batch", "10", "--cluster", "4xt4"],
        "global_batch=10",
    ),
}


@pytest.mark.parametrize("name", BAD_CALLS)
def test_misuse_gets_one_sentence_and_exit_code_two(name: str, tmp_path: Path) -> None:
    args, says = BAD_CALLS[name]
    done = run(*args, cwd=tmp_path)
    assert done.returncode == 2, done.stdout + done.stderr
    assert says in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not done.stdout
    assert not list(tmp_path.iterdir())


def test_a_model_that_cannot_run_without_data_names_its_line(tmp_path: Path) -> None:
    (tmp_path / "odd.py").write_text(
        "import torch\n"
        "class Odd(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.a = torch.nn.Linear(4, 4)\n"
        "    def forward(self, x):\n"
        "        y = self.a(x)\n"
        "        return y[y > 0].sum()\n"
        "def build():\n"
        "    return Odd(), torch.rand(2, 4)\n"
    )
    done = run("predict", "odd.py:build", cwd=tmp_path)
    assert done.returncode == 1
    assert "odd.py:8" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_model_file_that_exits_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "quits.py").write_text("import sys\nsys.exit(0)\n")
    done = run("predict", "quits.py:build", cwd=tmp_path)
    assert done.returncode == 2
    assert "quits.py:2" in done.stderr
    assert "SystemExit" in done.stderr


def test_a_file_none_of_whose_cases_can_be_answered_ends_with_one(tmp_path: Path) -> None:
    cases = tmp_path / "cases.jsonl"
    cases.write_text('{"model": "timm:nothing"}\n')
    done = run("predict", "--cases", str(cases), "--out", str(tmp_path / "out.jsonl"))
    assert done.returncode == 1
    assert "no case" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_an_interrupted_run_says_how_to_go_on(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text(
        "import time\ndef build():\n    print('started', flush=True)\n    time.sleep(60)\n"
    )
    (tmp_path / "cases.jsonl").write_text('{"model": "slow.py:build"}\n')
    process = subprocess.Popen(
        [*COMMAND, "predict", "--cases", "cases.jsonl", "--out", "out.jsonl"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    assert process.stderr.readline() == "started\n"  # what a model prints stays off stdout
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert errors == "foretell: interrupted: run the same command again to go on\n"


def test_a_reader_that_leaves_early_is_no_error() -> None:
    process = subprocess.Popen(
        [*COMMAND, "models"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait(timeout=60) == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("verb", [["devices"], ["--help"], ["--version"], ["models", "--json"]])
def test_a_full_disk_gets_one_sentence(verb: list[str]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*COMMAND, *verb], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60
        )
    assert done.returncode == 1
    assert done.stderr.startswith("foretell: output cannot be written: ")
    assert len(done.stderr.splitlines()) == 1


def test_nobody_listening_is_no_error() -> None:
    code = "import os; os.close(1); os.execv({0!r}, {0!r}.split() + {1!r})"
    command = [*COMMAND[1:], "devices", "t4"]
    done = subprocess.run(
        [sys.executable, "-c", code.format(sys.executable, command)], stderr=subprocess.PIPE
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_terminal_that_knows_only_ascii_gets_plain_characters() -> None:
    done = run("predict", "timm:resnet18", "--batch", "8", PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    assert " us " in done.stdout
    assert "###" in done.stdout


@pytest.mark.parametrize("columns", ["30", "80", "100"])
def test_tables_never_cut_a_cell(columns: str) -> None:
    devices = run("devices", COLUMNS=columns).stdout
    ids = {d["id"] for d in json.loads(run("devices", "--json").stdout)}
    assert ids <= {line.split()[0] for line in devices.splitlines() if line.split()}
    assert columns != "80" or max(map(len, devices.splitlines())) <= 80
    forecast = run("predict", "timm:resnet18", COLUMNS=columns).stdout
    assert "90 % interval" in forecast
    assert "…" not in forecast + devices


def test_no_batch_fits_is_said_rather_than_advised() -> None:
    args = ["predict", "hf:meta-llama/Llama-3.1-8B", "--max-batch", "--cluster", "t4"]
    answer = json.loads(run(*args, "--json").stdout)
    assert answer["max_batch"] == 0
    assert answer["subject"]["batch"] == 1
    shown = run(*args).stdout
    assert "none, not even 1" in shown
    assert "smaller batch" not in shown


@pytest.mark.parametrize("prefix", ["timm:", "hf:", "", "transformer:", "x.py:"])
def test_a_name_of_thousands_of_letters_gets_one_sentence(
    prefix: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["foretell", "predict", prefix + "n" * 5000])
    with pytest.raises(SystemExit) as done:
        main()
    assert done.value.code == 2
    assert len(capsys.readouterr().err) < 1500


SCRIPT = """#!/bin/bash
#SBATCH --nodes=2
#SBATCH --gpus-per-node=8
#SBATCH --time=1:00:00
srun torchrun --nnodes 2 --nproc_per_node 8 pretrain_gpt.py --tensor-model-parallel-size 2 \\
  --pipeline-model-parallel-size 2 --num-layers 4 --hidden-size 256 --num-attention-heads 4 \\
  --seq-length 128 --max-position-embeddings 128 --micro-batch-size 1 --global-batch-size 16 \\
  --vocab-size 1024 --bf16 --train-iters 100
"""


def test_a_launch_file_says_everything_but_the_cluster(tmp_path: Path) -> None:
    (tmp_path / "train.sbatch").write_text(SCRIPT)
    asked = run("predict", "--from", "train.sbatch", cwd=tmp_path)
    assert asked.returncode == 2
    assert "cluster" in asked.stderr
    done = run(
        "predict", "--from", "train.sbatch", "--cluster", "2x8xa100-80gb", "--json", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["subject"]["parallel"].startswith("dp=4, tp=2, pp=2 (1f1b)")
    assert answer["total_time_s"]["value"] == pytest.approx(100 * answer["step_time_s"]["value"])


def test_options_beside_a_launch_file_go_before_it(tmp_path: Path) -> None:
    (tmp_path / "train.sbatch").write_text(SCRIPT)
    beside = ("--cluster", "2x8xa100-80gb", "--tp", "4", "--batch", "2")
    done = run("predict", "--from", "train.sbatch", *beside, "--json", cwd=tmp_path)
    assert "tp=4" in json.loads(done.stdout)["subject"]["parallel"]
    assert json.loads(done.stdout)["subject"]["batch"] == 2


def shown(capsys: pytest.CaptureFixture[str], **options: Any) -> str:
    """The screen of a forecast."""
    model = "transformer:layers=4,hidden=64,heads=4,seq=32,vocab=128,dropout,rope"
    workload, cluster = workload_of(Case(model=model, batch=2, **options))
    show_forecast(predictor().predict(workload, cluster), workload, cluster, None)
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("plan", "words"),
    [({}, "device"), ({"zero": 3}, "device"), ({"pp": 2}, "model copy"), ({"tp": 2}, "model copy")],
)
def test_a_batch_is_per_device_where_a_device_holds_a_copy_of_the_model(
    plan: dict[str, int], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert f"batch 2 per {words}, train" in shown(capsys, cluster="2xa100-80gb", **plan)


def test_waiting_is_shown_by_name_beside_many_classes_of_operators(
    capsys: pytest.CaptureFixture[str],
) -> None:
    screen = shown(capsys, cluster="4xa100-80gb", pp=2, global_batch=16)
    rows = [line.split("  ")[1].strip() for line in screen.splitlines() if line.startswith("  ")]
    operators = rows[rows.index("operators") : rows.index("memory")]
    assert "rest" in operators
    assert {"exposed communication", "bubble"} <= set(operators)


BAD_LAUNCH_FILES: dict[str, bytes] = {
    "empty": b"",
    "binary": b"\x7fELF\0\0",
    "contradiction": b"torchrun --nproc_per_node 8 t.py --fp16 --bf16 --max_steps 5\n",
    "deep": b'{"train_batch_size": ' + b"[" * 100_000,
    "bomb": b"a: &a [1,1,1,1,1,1,1,1]\n"
    + b"".join(
        b"%c: &%c [%s]\n" % (n, n, b",".join([b"*%c" % (n - 1)] * 8)) for n in range(98, 108)
    ),
    "code": b"num_processes: !!python/object/apply:os.system [touch ran]\n",
}


@pytest.mark.parametrize("name", BAD_LAUNCH_FILES)
def test_a_bad_launch_file_gets_one_sentence_and_exit_code_two(name: str, tmp_path: Path) -> None:
    (tmp_path / "job").write_bytes(BAD_LAUNCH_FILES[name])
    done = run("predict", "--from", "job", cwd=tmp_path)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "job" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["job"]


def test_what_gives_way_to_an_option_is_told_in_the_notes(tmp_path: Path) -> None:
    (tmp_path / "train.sbatch").write_text(SCRIPT)
    beside = ("--cluster", "8xa100-80gb", "--no-master-weights", "--batch", "4")
    done = run("predict", "--from", "train.sbatch", *beside, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["breakdown"]["memory"].get("master_weights", 0) == 0
    for note in (
        "world size 16 (train.sbatch:5 --nproc_per_node) gives way to 8 (--cluster)",
        "batch 1 (train.sbatch:7 --micro-batch-size) gives way to 4 (--batch)",
        "master weights True (train.sbatch:8 --bf16) gives way to False (--no-master-weights)",
    ):
        assert note in answer["notes"]


def test_an_option_that_breaks_a_launch_file_gets_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "train.sbatch").write_text(SCRIPT)
    beside = ("--cluster", "2x8xa100-80gb", "--batch", "3")
    done = run("predict", "--from", "train.sbatch", *beside, cwd=tmp_path)
    assert done.returncode == 2
    assert "16 (train.sbatch:7 --global-batch-size)" in done.stderr
    assert "3 (--batch)" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("name", [f.name for f in dataclasses.fields(Case) if f.type == "bool"])
def test_every_switch_can_be_turned_off(name: str) -> None:
    command = typer.main.get_command(app).commands["predict"]  # type: ignore[attr-defined]
    words = [f"--{prefix}{name.replace('_', '-')}" for prefix in ("", "no-")]
    on, off = (command.make_context("predict", ["timm:resnet18", word]) for word in words)
    assert (on.params[name], off.params[name]) == (True, False)
    assert off.get_parameter_source(name).name == "COMMANDLINE"


def test_help_does_not_list_what_is_off_anyway() -> None:
    shown = run("predict", "--help").stdout
    assert "--no-overlap" in shown
    assert "--no-master-weights" not in shown


def test_a_pipeline_trace_has_a_process_per_stage(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    model = "transformer:layers=4,hidden=64,heads=4,seq=32,vocab=128"
    plan = ("--cluster", "4xa100-80gb", "--pp", "4", "--batch", "1", "--global-batch", "8")
    run("predict", model, *plan, "--trace", str(path))
    events = json.loads(path.read_text())["traceEvents"]
    assert {e["pid"] for e in events} == {0, 1, 2, 3}
    forward = [e["name"] for e in events if e["name"].startswith("forward")]
    assert sum("to stage" in name for name in forward) == 3 * 8
    assert sum("to stage" not in name for name in forward) == 4 * 8
