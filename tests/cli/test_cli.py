"""The command line: output, exit codes, one clear sentence for every mistake."""

from __future__ import annotations

import dataclasses
import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest

from foretell.api import Case
from foretell.cli.predict import predict

COMMAND = [sys.executable, "-c", "from foretell.cli import main; main()"]


def run(*args: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *args], capture_output=True, text=True, cwd=cwd, timeout=120)


def test_predict_options_are_the_fields_of_a_case() -> None:
    outside = {"max_batch", "json_output", "trace", "cases", "out"}
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
    "missing cases": (["predict", "--cases", "x.jsonl", "--out", "y"], "x.jsonl"),
    "bad transformer": (["predict", "transformer:layers=2"], "hidden"),
    "heads": (
        ["predict", "transformer:layers=2,hidden=10,heads=3,seq=8,vocab=9"],
        "not divisible",
    ),
    "unknown module": (["predict", "timm:resnet18", "--recompute", "nope"], "nope"),
    "unknown device": (["devices", "zx81"], "zx81"),
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
