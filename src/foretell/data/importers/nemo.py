"""NeMo: vendor-published FP8 pre-training throughput on H100, from the history of its docs.

Upstream prints one state of its tables in Markdown; a CSV file of all states, dated, is read as
well. Of each configuration the newest figure counts. Fine-tuning rows and the table of long
sequences, which names no model, are left out; estimated times to train are extrapolations.
"""

from __future__ import annotations

from pathlib import Path

from foretell.data.importers.markdown import csv_and_pages
from foretell.data.importers.megatron_bridge import SYSTEMS, llm_record
from foretell.data.importers.rows import BadRowError, Row, each
from foretell.data.importers.source import Rows, Source
from foretell.data.record import Record, Reject

_TABLE, _PAGE = "performance_summary_history.csv", "performance_summary.md"


def read(folder: Path) -> Rows:
    """All rows by date; a configuration's place is that of its first figure."""
    newest: dict[str, Record] = {}
    rows = csv_and_pages(folder, _TABLE, _PAGE)
    for row in each(sorted(rows, key=lambda r: r.cells.get("date", "")), _step):
        if isinstance(row, Reject):
            yield row
            continue
        configuration = f"{row.group} {row.options['global_batch']}"
        if configuration in newest:
            yield Reject(newest[configuration].origin, "a newer figure of the same configuration")
        newest[configuration] = row
    yield from newest.values()


def _step(row: Row) -> Record:
    section = row.text("section").strip("* ")
    if section.endswith("Finetuning"):
        raise BadRowError("fine-tuning")
    if not section.endswith("Pretraining"):
        raise BadRowError("a table that names no model")
    return llm_record(row, SOURCE.name, row.text("Model"), SYSTEMS["H100"], "fp8")


SOURCE = Source(
    name="nemo",
    repository="https://github.com/NVIDIA/NeMo",
    commit="8cfedd7203462cb251a914e700e5605444277561",
    licence="Apache-2.0",
    use="fit",
    files=(f"docs/source/performance/{_PAGE}", _TABLE),
    read=read,
)
