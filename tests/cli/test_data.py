"""foretell data: measurements come in, can be looked at, and survive what happens to disks."""

from __future__ import annotations

import csv
import json
import os
import random
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from foretell.data import Record
from foretell.data.columns import to_records
from foretell.data.importers import NAMES
from foretell.data.store import Store
from tests.cli.test_cli import COMMAND, run

HERE = str(Path(__file__).parent)
HEADER = "model,train_samples_per_sec,train_step_time,train_batch_size,train_img_size,param_count\n"
ROWS = (
    "resnet50,400,320,128,224,25.56\n"
    "resnet18.a1_in1k,1500,170,256,224,11.69\n"
    "vit_base_patch16_224,fast,170,256,224,86.57\n"
)


@pytest.fixture
def published(tmp_path: Path) -> Path:
    """A small table in timm's layout."""
    folder = tmp_path / "upstream" / "results"
    folder.mkdir(parents=True)
    (folder / "benchmark-train-amp-nchw-pt112-cu113-rtx3090.csv").write_text(HEADER + ROWS)
    return tmp_path / "upstream"


@pytest.fixture
def store(published: Path, tmp_path: Path) -> Path:
    """A store that holds the small table."""
    directory = tmp_path / "store"
    done = data("import", "timm", "--from", published, store=directory)
    assert done.returncode == 0, done.stderr
    return directory


def data(*args: str | Path, store: Path) -> subprocess.CompletedProcess[str]:
    return run("data", *map(str, args), "--store", str(store))


def one_sentence(done: subprocess.CompletedProcess[str], exit_code: int) -> str:
    assert done.returncode == exit_code, done.stdout + done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    return done.stderr


def test_an_import_says_what_was_read_kept_and_rejected(published: Path, tmp_path: Path) -> None:
    rejects = tmp_path / "rejects.csv"
    args = ("import", "timm", "--from", published, "--rejects", rejects)
    done = data(*args, store=tmp_path / "store")
    assert "timm: 3 rows read, 2 kept, 1 rejected" in done.stdout
    assert "2 added" in done.stdout
    assert "1   train_samples_per_sec is not a number" in done.stdout
    with rejects.open(newline="") as stream:
        header, row = list(csv.reader(stream))
    assert header == ["origin", "reason"]
    assert row[0].endswith("rtx3090.csv:4")


def test_importing_twice_adds_nothing(published: Path, store: Path) -> None:
    done = data("import", "timm", "--from", published, store=store)
    assert "0 added" in done.stdout
    assert "2 were there already" in done.stdout
    assert Store(store).table().num_rows == 2


def test_rows_that_came_since_are_added_alone(published: Path, store: Path) -> None:
    (table,) = published.rglob("*.csv")
    table.write_text(HEADER + ROWS + "resnet34,700,180,128,224,21.8\n")
    assert "1 added" in data("import", "timm", "--from", published, store=store).stdout


def test_measurements_are_counted(store: Path) -> None:
    shown = data("ls", store=store).stdout
    assert [line.split() for line in shown.splitlines() if "timm" in line] == [
        ["timm", "step", "rtx3090", "ok", "2"]
    ]
    assert "2 rows in 1 file" in shown
    (row,) = json.loads(data("ls", "--json", store=store).stdout)
    assert row == {
        "source": "timm",
        "kind": "step",
        "device": "rtx3090",
        "outcome": "ok",
        "rows": 2,
    }


def test_an_empty_store_is_said_to_be_empty_and_a_missing_one_to_be_missing(tmp_path: Path) -> None:
    done = data("ls", store=tmp_path)
    assert done.returncode == 0
    assert "no measurements" in done.stdout
    assert json.loads(data("ls", "--json", store=tmp_path).stdout) == []
    assert "does not exist" in one_sentence(data("ls", store=tmp_path / "nothing"), 2)
    assert not (tmp_path / "nothing").exists()


def test_one_measurement_is_shown_by_the_start_of_its_id(store: Path) -> None:
    first = next(Store(store).records())
    shown = data("show", first.id[:10], store=store).stdout
    for words in ("timm:resnet50", "320 ms", "image_size = 224", first.id):
        assert words in shown
    answer = json.loads(data("show", first.id, "--json", store=store).stdout)
    assert (answer["id"], answer["model"], answer["time_s"]) == (first.id, "timm:resnet50", 0.32)
    assert answer["options"]["image_size"] == 224
    assert "no id" in one_sentence(data("show", "xyz", store=store), 2)
    assert "start of 2 ids" in one_sentence(data("show", "", store=store), 2)


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl"])
def test_an_export_holds_every_row(suffix: str, store: Path, tmp_path: Path) -> None:
    file = tmp_path / f"all{suffix}"
    assert "2 rows written" in data("export", file, store=store).stdout
    if suffix == ".parquet":
        models = [record.model for record in to_records(pq.read_table(file))]
    elif suffix == ".csv":
        with file.open(newline="") as stream:
            models = [row["model"] for row in csv.DictReader(stream)]
    else:
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        models = [row["model"] for row in rows]
        assert rows[0]["metrics"]["parameters"] == 25_560_000
    assert models == ["timm:resnet50", "timm:resnet18"]
    assert [p.name for p in tmp_path.iterdir() if ".part" in p.name] == []


def test_an_export_can_be_of_one_source(store: Path, tmp_path: Path) -> None:
    file = tmp_path / "some.csv"
    assert "2 rows" in data("export", file, "--source", "timm", store=store).stdout
    done = data("export", tmp_path / "none.csv", "--source", "zeus", store=store)
    assert "no measurements of zeus" in one_sentence(done, 2)
    assert not (tmp_path / "none.csv").exists()


BAD_CALLS: dict[str, tuple[tuple[str, ...], int, str]] = {
    "unknown source": (("import", "tim", "--from", "."), 2, "did you mean timm"),
    "missing folder": (("import", "timm", "--from", "nowhere"), 2, "github.com/huggingface"),
    "folder of something else": (("import", "timm", "--from", HERE), 2, "benchmark-train-*.csv"),
    "no folder": (("import", "timm"), 2, "--from"),
    "unknown format": (("export", "x.xlsx"), 2, ".parquet, .csv, .jsonl"),
    "missing place": (("export", "nowhere/x.csv"), 2, "nowhere/x.csv"),
    "place is a folder": (("export", "/"), 2, "ends in no format"),
    "unknown verb": (("lss",), 2, "lss"),
}


@pytest.mark.parametrize("name", BAD_CALLS)
def test_misuse_gets_one_sentence(name: str, store: Path) -> None:
    args, exit_code, says = BAD_CALLS[name]
    extra = () if args[0] == "lss" else ("--store", str(store))
    assert says in one_sentence(run("data", *args, *extra), exit_code)


def test_sources_are_listed_with_licence_and_use() -> None:
    shown = run("data", "sources").stdout
    for name in NAMES:
        assert name in shown
    rows = {row["name"]: row for row in json.loads(run("data", "sources", "--json").stdout)}
    assert rows["timm"]["licence"] == "Apache-2.0"
    assert (rows["timm"]["use"], rows["gpumemnet"]["use"]) == ("fit", "check")


def test_the_store_of_the_environment_is_the_default(published: Path, tmp_path: Path) -> None:
    place = {"FORETELL_STORE": str(tmp_path / "mine")}
    run("data", "import", "timm", "--from", str(published), **place)
    assert Store(tmp_path / "mine").table().num_rows == 2
    assert "2 rows" in run("data", "ls", **place).stdout


def test_compacting_leaves_one_file_with_every_row_once(store: Path) -> None:
    records = list(Store(store).records())
    Store(store).append(records)
    Store(store).append([record_of(0)])
    assert "3 rows in 1 file" in data("compact", store=store).stdout
    assert len(list(store.glob("*.parquet"))) == 1


def record_of(number: int) -> Record:
    return Record(model=f"timm:m{number}", time_s=1.0, source="foretell", origin=str(number))


def changed(name: str, value: object) -> Callable[[Path], None]:
    """Write the first file of a store again with another value in a column's first row."""

    def change(store: Path) -> None:
        (file,) = store.glob("*.parquet")
        table = pq.read_table(file)
        place = table.column_names.index(name)
        column = pa.array([value, *table[name].to_pylist()[1:]], table.schema.field(name).type)
        pq.write_table(table.set_column(place, table.schema.field(name), column), file)

    return change


def truncate(store: Path) -> None:
    (file,) = store.glob("*.parquet")
    os.truncate(file, file.stat().st_size // 2)


def flip(store: Path) -> None:
    (file,) = store.glob("*.parquet")
    content = bytearray(file.read_bytes())
    content[-1] ^= 0xFF
    file.write_bytes(content)


def add_foreign(store: Path) -> None:
    pq.write_table(pa.table({"x": [1, 2]}), store / "foreign.parquet")


DAMAGE: dict[str, tuple[Callable[[Path], None], int | None, str]] = {
    "value": (changed("time_s", -1.0), 0, "must be a positive number"),
    "id": (changed("id", "0" * 32), 0, "is not that of its values"),
    "kind": (changed("kind", "dance"), 0, "dance"),
    "mapping": (changed("options", "{"), 0, "not JSON"),
    "cut off": (truncate, None, "cannot be read"),
    "flipped": (flip, None, "cannot be read"),
    "foreign": (add_foreign, None, "schema none"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_validate_says_what_is_wrong_and_where(name: str, store: Path) -> None:
    assert data("validate", store=store).returncode == 0
    damage, row, says = DAMAGE[name]
    damage(store)
    done = data("validate", store=store)
    assert done.returncode == 1
    assert says in done.stdout
    answer = json.loads(data("validate", "--json", store=store).stdout)
    (fault,) = answer["faults"]
    assert fault["row"] == row
    assert (store / fault["file"]).exists()


@pytest.mark.parametrize("damage", [truncate, add_foreign])
def test_a_file_that_is_not_the_stores_is_named(
    damage: Callable[[Path], None], store: Path, tmp_path: Path
) -> None:
    damage(store)
    for verb in (("ls",), ("show", "a"), ("export", tmp_path / "x.csv"), ("compact",)):
        assert ".parquet" in one_sentence(data(*verb, store=store), 2)


APPENDING = """
import itertools, sys
from pathlib import Path
from foretell.data import Record
from foretell.data.store import Store
store, writer = Store(Path(sys.argv[1])), sys.argv[2]
print("ready", flush=True)
for number in itertools.count():
    rows = [
        Record(model="m", time_s=1.0, source="foretell", origin=f"{writer}/{number}/{part}")
        for part in range(3)
    ]
    store.append(rows)
    print(number, flush=True)
    if number % 7 == 6:
        store.compact()
"""


def writer(store: Path, name: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", APPENDING, str(store), name]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def reported(process: subprocess.Popen[str]) -> list[int]:
    """The appends a killed writer had called done."""
    assert process.stdout is not None
    lines = process.stdout.read().splitlines(keepends=True)
    process.stdout.close()
    process.wait(timeout=60)
    return [int(line) for line in lines if line.endswith("\n")]


def test_a_writer_killed_at_any_moment_loses_nothing_it_had_reported(tmp_path: Path) -> None:
    chance = random.Random(7)
    promised: set[str] = set()
    for turn in range(12):
        process = writer(tmp_path, str(turn))
        time.sleep(chance.uniform(0.0, 0.25))
        process.kill()
        for number in reported(process):
            promised |= {f"{turn}/{number}/{part}" for part in range(3)}
        rows = Store(tmp_path).table()["origin"].to_pylist()
        assert promised <= set(rows)
        assert len(rows) == len(set(rows))
        assert len(rows) % 3 == 0  # an append is there whole or not at all
    assert promised
    assert data("validate", store=tmp_path).returncode == 0
    assert data("compact", store=tmp_path).returncode == 0
    assert promised <= set(Store(tmp_path).table()["origin"].to_pylist())


def test_two_writers_and_a_reader_do_not_disturb_each_other(tmp_path: Path) -> None:
    writers = {name: writer(tmp_path, name) for name in ("a", "b")}
    seen = 0
    for _ in range(10):
        rows = Store(tmp_path).table().num_rows
        assert rows >= seen
        seen = rows
        time.sleep(0.05)
    promised = set()
    for name, process in writers.items():
        process.kill()
        for number in reported(process):
            promised |= {f"{name}/{number}/{part}" for part in range(3)}
    assert {origin[0] for origin in promised} == {"a", "b"}
    assert promised <= set(Store(tmp_path).table()["origin"].to_pylist())


def limited(*args: str) -> subprocess.CompletedProcess[str]:
    """A command whose files cannot grow beyond two kilobytes, as if the disk were full."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2048, 2048))

    return subprocess.run(
        [*COMMAND, *args], capture_output=True, text=True, timeout=120, preexec_fn=limit
    )


def test_a_full_disk_is_said_in_one_sentence_and_costs_no_earlier_row(
    published: Path, store: Path, tmp_path: Path
) -> None:
    (table,) = published.rglob("*.csv")
    table.write_text(HEADER + "".join(f"m{i},400,320,128,224,25.56\n" for i in range(500)))
    import_it = ("data", "import", "timm", "--from", str(published), "--store", str(store))
    done = limited(*import_it)
    assert "cannot be written" in one_sentence(done, 1)
    assert "--store" in done.stderr
    assert Store(store).table().num_rows == 2
    assert [p.suffix for p in store.iterdir()] == [".parquet"]
    assert "500 added" in run(*import_it).stdout


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".jsonl"])
def test_an_export_to_a_full_disk_leaves_the_earlier_file(suffix: str, tmp_path: Path) -> None:
    store, file = tmp_path / "store", tmp_path / f"all{suffix}"
    Store(store).append([record_of(number) for number in range(300)])
    file.write_text("earlier")
    done = limited("data", "export", str(file), "--store", str(store))
    assert "cannot be written" in one_sentence(done, 1)
    assert file.read_text() == "earlier"
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(["store", file.name])
