"""Logs of every format as rows; what is malformed is said line by line."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path

import pytest

from benchmarks.sources import folder_of
from foretell.errors import InputError, UnknownNameError
from foretell.schedule.readers import FORMATS, Row, format_of, read_log

SWF = (
    "; Version: 2.2\n; Computer: iPSC\n"
    "1 0 -1 1451 128 -1 -1 64 3600 -1 -1 7 3 21 -1 -1 -1 -1\n"
    "2 1460 -1 -1 128 -1 -1 -1 -1 -1 -1 1 1 -1 -1 -1 -1 -1\n"
    "3 1470 -1 10 8 -1 -1 -1 -1 -1 -1 1 1 -1 -1 -1 -1 -1\n"
)
SACCT = (
    "JobID|JobName|User|Account|Submit|Start|End|Elapsed|Timelimit|ReqTRES|State\n"
    "11|train|ann|vision|2026-03-01T10:00:00|x|x|1-02:00:30|2-00:00:00|"
    "cpu=8,gres/gpu=4,gres/gpu:v100=4,node=1|COMPLETED\n"
    "11.batch|batch|||2026-03-01T10:00:00|x|x|00:10:00||gres/gpu=4|COMPLETED\n"
    "12|cpu|bob|vision|2026-03-01T10:00:10|x|x|00:10:00|01:00:00|cpu=8|COMPLETED\n"
    "13|odd|bob|vision|2026-03-01T10:00:20|x|x|ten|01:00:00|gres/gpu=1|COMPLETED\n"
    "14|long|bob|nlp|2026-03-01T10:01:00|x|x|05:00|UNLIMITED|billing=1,gres/gpu=2|FAILED\n"
)
HELIOS = (
    "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
    "1,u1,vcA,8,32,1,COMPLETED,2020-04-01 00:00:00,2020-04-01 00:00:05,2020-04-01 01:00:05,3600,5\n"
    "2,u2,vcA,0,4,1,COMPLETED,2020-04-01 00:00:01,2020-04-01 00:00:05,2020-04-01 01:00:05,3600,4\n"
)
ACME = (
    "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,"
    "queue,gpu_time\n"
    "a,u1,8,64,960,Pretrain,COMPLETED,2023-05-17 11:00:58+08:00,2023-05-17 11:01:08+08:00,"
    "2023-05-17 11:01:16+08:00,8.0,10.0,512.0\n"
)
ALIBABA_2023 = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,"
    "deletion_time,scheduled_time\n"
    "p0,12000,16384,1,460,V100M32,LS,Succeeded,100,700,160\n"
    "p1,12000,16384,0,0,,LS,Succeeded,100,700,160\n"
    "p2,12000,16384,2,1000,,BE,Pending,100,,\n"
)
GAVEL_7 = "ResNet-18 (batch size 16)\tcd x && python3 main.py\t--steps\t1\t1000\t5.0\t2\n"
GAVEL_10 = (
    "ResNet-18 (batch size 16)\tpython3 main.py\tcifar10\t--steps\t1\t1000\t2\t1\t-1.0\t5\n"
    "VGG (batch size 1)\tpython3 main.py\tcifar10\t--steps\t1\t1000\t2\t1\t-1.0\t6\n"
)
GAVEL_12 = (
    "ResNet-18 (batch size 16)\tpython3 main.py\tcifar10\t--steps\t1\t1000\t2\tgns\t1\t-1.0\t9\t5\n"
)
POLLUX = "name,time,application,num_replicas,batch_size\ncifar10-0,107,cifar10,4,128\n"
PHILLY = [
    {
        "jobid": "j1",
        "vc": "vc0",
        "user": "u0",
        "submitted_time": "2017-10-09 07:02:03",
        "attempts": [
            {
                "start_time": "2017-10-09 07:02:33",
                "end_time": "2017-10-09 07:12:33",
                "detail": [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}],
            },
            {
                "start_time": "2017-10-09 08:00:00",
                "end_time": "2017-10-09 08:10:00",
                "detail": [{"ip": "m2", "gpus": ["gpu0", "gpu1"]}],
            },
        ],
    },
    {"jobid": "j2", "submitted_time": "2017-10-09 07:02:03", "attempts": []},
    {"jobid": "j3"},
]


def written(folder: Path, text: str, name: str = "jobs.csv") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_plain_table_is_read_by_the_names_of_its_columns(tmp_path: Path) -> None:
    text = (
        "timestamp,duration,num_gpus,gpu_time,cluster\n"
        "2017-09-04 10:30:41,60.5,8,484,vc1\n2017-09-04 10:30:40,10,1,10,vc2\n"
    )
    rows, left = read_log(written(tmp_path, text))
    assert [(r.id, r.duration_s, r.devices, r.group) for r in rows] == [
        ("3", 10.0, 1, "vc2"),
        ("2", 60.5, 8, "vc1"),
    ]
    assert rows[1].submit_s - rows[0].submit_s == 1.0
    assert not left


def test_own_columns_are_all_understood(tmp_path: Path) -> None:
    text = (
        "id,submit_s,duration_s,devices,user,group,name,limit_s,deadline_s,device\n"
        "a,5,60,2,ann,vision,resnet,100,500,V100\nb,6,60,1,,,,,,\n"
    )
    rows, _ = read_log(written(tmp_path, text))
    assert rows[0] == Row(
        line=2,
        id="a",
        submit_s=5.0,
        duration_s=60.0,
        devices=2,
        user="ann",
        group="vision",
        name="resnet",
        limit_s=100.0,
        deadline_s=500.0,
        device="V100",
    )
    assert (rows[1].limit_s, rows[1].deadline_s, rows[1].user) == (math.inf, math.inf, "")


def test_a_packed_table_in_hours(tmp_path: Path) -> None:
    path = tmp_path / "pai.csv.gz"
    path.write_bytes(gzip.compress(b"arrival_time,length,cpus\n1.5,2,4\n"))
    rows, _ = read_log(path, unit_s=3600.0)
    assert (rows[0].submit_s, rows[0].duration_s, rows[0].devices) == (5400.0, 7200.0, 4)


def test_malformed_lines_are_named_and_the_rest_is_read(tmp_path: Path) -> None:
    text = (
        "submit_time,duration,num_gpus\n0,10,1\nsoon,10,1\n1,10,half\n2,10\n3,-5,1\n4,0,1\n5,7,0\n"
        "6,10,-2\n"
    )
    rows, left = read_log(written(tmp_path, text))
    assert len(rows) == 1
    assert {(each.line, each.malformed) for each in left} == {
        (3, True),
        (4, True),
        (5, True),
        (6, True),
        (7, False),
        (8, False),
        (9, True),
    }
    said = {each.line: each.reason for each in left}
    assert said[3] == "submitted 'soon' is neither a number nor a date"
    assert said[4] == "devices 'half' is not a number"
    assert said[5] == "2 cells where the header names 3"
    assert said[7] == "ran for no time"


def test_swf(tmp_path: Path) -> None:
    path = written(tmp_path, SWF, "log.swf")
    assert format_of(path) == "swf"
    rows, left = read_log(path)
    assert [(r.id, r.devices, r.duration_s, r.limit_s) for r in rows] == [
        ("1", 64, 1451.0, 3600.0),
        ("3", 8, 10.0, math.inf),
    ]
    assert (rows[0].user, rows[0].group, rows[0].name) == ("7", "3", "21")
    assert [(each.line, each.malformed) for each in left] == [(4, False)]


def test_sacct(tmp_path: Path) -> None:
    path = written(tmp_path, SACCT, "jobs.txt")
    assert format_of(path) == "sacct"
    rows, left = read_log(path)
    assert [(r.id, r.devices, r.duration_s, r.limit_s, r.device) for r in rows] == [
        ("11", 4, 93_630.0, 172_800.0, "v100"),
        ("14", 2, 300.0, math.inf, ""),
    ]
    assert [(each.line, each.malformed) for each in left] == [(3, False), (4, False), (5, True)]


@pytest.mark.parametrize(
    ("text", "name", "first"),
    [
        (HELIOS, "helios", ("1", 8, 3600.0, "u1")),
        (ACME, "acme", ("a", 64, 8.0, "u1")),
        (ALIBABA_2023, "alibaba-2023", ("p0", 1, 540.0, "")),
    ],
)
def test_tables_of_other_clusters(
    tmp_path: Path, text: str, name: str, first: tuple[str, int, float, str]
) -> None:
    path = written(tmp_path, text)
    assert format_of(path) == name
    rows, _ = read_log(path)
    assert (rows[0].id, rows[0].devices, rows[0].duration_s, rows[0].user) == first


def test_alibaba_of_2020_adds_up_tasks(tmp_path: Path) -> None:
    jobs = "j1,i1,u1,Terminated,100,400\nj2,i2,u1,Running,100,\nj3,i3,u2,Terminated,5,9\n"
    tasks = (
        "j1,worker,4,Terminated,100,400,600,10,50,V100\nj1,ps,1,Terminated,100,400,600,10,,\n"
        "j2,worker,1,Running,100,,600,10,100,T4\n"
    )
    written(tmp_path, jobs, "pai_job_table.csv")
    written(tmp_path, tasks, "pai_task_table.csv")
    assert format_of(tmp_path) == "alibaba-2020"
    rows, left = read_log(tmp_path)
    assert [(r.id, r.devices, r.duration_s, r.device) for r in rows] == [("j1", 2, 300.0, "V100")]
    assert [each.reason for each in left] == ["has not ended", "has no tasks"]


@pytest.mark.parametrize("text", [GAVEL_7, GAVEL_10, GAVEL_12])
def test_gavel_counts_steps(tmp_path: Path, text: str) -> None:
    rates = {"v100": {"('ResNet-18 (batch size 16)', 2)": {"null": 4.0}}}
    written(tmp_path, json.dumps(rates), "simulation_throughputs.json")
    folder = tmp_path / "traces"
    folder.mkdir()
    path = written(folder, text, "small.trace")
    assert format_of(path) == "gavel"
    rows, left = read_log(path)
    assert [(r.submit_s, r.duration_s, r.devices) for r in rows] == [(5.0, 250.0, 2)]
    assert all("no throughput of 'VGG (batch size 1)'" in each.reason for each in left)


def test_gavel_without_its_throughputs_says_what_is_missing(tmp_path: Path) -> None:
    path = written(tmp_path, GAVEL_7, "small.trace")
    with pytest.raises(InputError, match=r"simulation_throughputs.json.*put it beside"):
        read_log(path)


def test_pollux_works_out_how_long_training_takes(tmp_path: Path) -> None:
    measured = tmp_path / "traces" / "cifar10"
    measured.mkdir(parents=True)
    written(measured, "progress,iteration\n1,100\n2,200\n", "validation-128.csv")
    placements = "placement,local_bsz,step_time,sync_time\n4,16,0.1,0\n4,48,0.3,0\n1111,32,9,0\n"
    written(measured, placements, "placements.csv")
    path = written(tmp_path, POLLUX, "workload-1.csv")
    assert format_of(path) == "pollux"
    rows, _ = read_log(path)
    assert rows[0].duration_s == pytest.approx(200 * 0.2)


def test_philly_as_json(tmp_path: Path) -> None:
    path = written(tmp_path, json.dumps(PHILLY), "cluster_job_log")
    assert format_of(path) == "philly"
    rows, left = read_log(path)
    assert [(r.id, r.duration_s, r.devices, r.user) for r in rows] == [("j1", 1200.0, 2, "u0")]
    assert [each.malformed for each in left] == [False, True]


def test_a_file_without_the_needed_columns_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, "a,b\n1,2\n")
    with pytest.raises(InputError, match=r"lacks columns: .* submit .*; devices .*; duration"):
        read_log(path)


@pytest.mark.parametrize(
    ("text", "says"),
    [("", "is empty"), ("submit_time,duration,num_gpus\n", "has no job that can be scheduled")],
)
def test_an_empty_trace_is_refused(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        read_log(written(tmp_path, text))


def test_what_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        read_log(tmp_path / "no.csv")
    with pytest.raises(UnknownNameError, match="trace format 'sv'"):
        read_log(written(tmp_path, SWF), "sv")
    with pytest.raises(InputError, match="folder without tables"):
        read_log(tmp_path)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_bytes(b"\xff\xfe\x00\x01" * 50)
    with pytest.raises(InputError, match="cannot be read"):
        read_log(path)


@pytest.mark.parametrize(
    ("source", "inside", "name", "jobs"),
    [
        ("philly", "philly.csv.gz", "csv", 57_573),
        ("swf", "NASA-iPSC-1993-3.1-cln.swf.gz", "swf", 18_066),
        ("alibaba_gpu", "v2023/openb_pod_list_default.csv.gz", "alibaba-2023", 6_203),
        ("gaia_pai", "pai-100k.csv.gz", "csv", 99_998),
        ("tiresias", "60_job.csv", "csv", 60),
        ("gavel", "traces/max_min_fairness.trace", "gavel", 96),
        ("pollux", "benchmark/workloads/workload-1.csv", "pollux", 160),
        ("sia", "workloads/philly/workload-1.csv", "pollux", 160),
        ("elasticflow", "traces_for_ElasticFlow/philly_103959.csv", "csv", 876),
    ],
)
def test_published_logs(source: str, inside: str, name: str, jobs: int) -> None:
    folder = folder_of(source)
    if folder is None:
        pytest.skip(f"the log of {source} is not here: fetch it and set FORETELL_DATA")
    path = folder / inside
    assert format_of(path) == name
    assert len(read_log(path)[0]) == jobs


def test_every_format_says_what_it_is() -> None:
    assert all(reader.about for reader in FORMATS.values())
