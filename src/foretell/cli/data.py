"""foretell data: measurements, our own and those of others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Optional

import typer

from foretell.errors import InputError
from foretell.units import format_bytes, format_duration

if TYPE_CHECKING:
    from foretell.data import Record
    from foretell.data.check import Fault
    from foretell.data.importers import Tally
    from foretell.data.store import Store

data = typer.Typer(
    help="Keep, look at and exchange measurements: foretell data ls.",
    no_args_is_help=False,
    invoke_without_command=True,
)
_StoreOption = Annotated[
    Optional[Path],
    typer.Option("--store", help="Directory of the store; FORETELL_STORE or the user's own."),
]
_JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_COUNTED = ("source", "kind", "device", "outcome")
_EVERY_ROWS = 1000
_SHOWN_FAULTS = 20


@data.callback()
def _root(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())


@data.command()
def sources(json_output: _JsonOption = False) -> None:
    """List the published measurements that can be imported."""
    import json

    from foretell.cli.show import plain_table, print_line, print_table
    from foretell.data.importers import NAMES, source

    found = [source(name) for name in NAMES]
    if json_output:
        fields = ("name", "use", "licence", "repository", "commit", "files")
        print_line(json.dumps([{f: getattr(s, f) for f in fields} for s in found]))
        return
    table = plain_table("source", "use", "licence", "repository")
    for one in found:
        table.add_row(one.name, one.use, one.licence, one.repository.removeprefix("https://"))
    print_table(table)
    print_line("Use: shipped weights may learn from 'fit'; 'check' is for validation only.")


@data.command("import")
def import_rows(
    name: Annotated[str, typer.Argument(help="A source: foretell data sources.")],
    folder: Annotated[Path, typer.Option("--from", help="Folder the source was fetched to.")],
    store: _StoreOption = None,
    rejects: Annotated[
        Optional[Path], typer.Option("--rejects", help="CSV file for rows that are not taken.")
    ] = None,
) -> None:
    """Read published measurements into the store; rows that are there already stay single."""
    from foretell.cli.show import counted_progress, print_line
    from foretell.data.export import write_rows
    from foretell.data.importers import Tally, records_of

    place, tally = _store(store, must_exist=False), Tally()
    with counted_progress(f"reading {name}") as advance:
        rows = records_of(name, folder, tally)
        added = place.append(_unknown(rows, place.ids(), tally, advance))
    if rejects is not None:
        write_rows(rejects, ("origin", "reason"), ((r.origin, r.reason) for r in tally.rejects))
    print_line(
        f"{name}: {tally.read:,} rows read, {tally.kept:,} kept, {len(tally.rejects):,} rejected"
    )
    print_line(f"{added:,} added to {place.directory}, {tally.kept - added:,} were there already")
    _show_reasons(tally)


def _unknown(
    rows: Iterator[Record],
    known: set[str],
    tally: Tally,
    advance: Callable[[int, int | None], None],
) -> Iterator[Record]:
    """Those rows whose id the store does not have."""
    for record in rows:
        if tally.read % _EVERY_ROWS == 0:
            advance(tally.read, None)
        row_id = record.id
        if row_id not in known:
            known.add(row_id)
            yield record


def _show_reasons(tally: Tally) -> None:
    from rich.text import Text

    from foretell.cli.show import plain_table, print_table

    if not tally.rejects:
        return
    table = plain_table(">rejected", "because")
    for reason, count in tally.reasons().most_common():
        table.add_row(f"{count:,}", Text(reason))
    print_table(table)


@data.command()
def ls(store: _StoreOption = None, json_output: _JsonOption = False) -> None:
    """Count the measurements by source, kind, device and outcome."""
    import json

    from rich.text import Text

    from foretell.cli.show import plain_table, print_line, print_table

    place = _store(store)
    table = place.table()
    columns = [table[name].to_pylist() for name in _COUNTED]
    counts = sorted(Counter(zip(*columns, strict=True)).items())
    if json_output:
        rows = [{**dict(zip(_COUNTED, key, strict=True)), "rows": n} for key, n in counts]
        print_line(json.dumps(rows))
        return
    if not counts:
        print_line(f"no measurements in {place.directory}: foretell data import brings some")
        return
    shown = plain_table(*_COUNTED, ">rows")
    for key, count in counts:
        shown.add_row(*(Text(value or "–") for value in key), f"{count:,}")
    print_table(shown)
    print_line(f"{table.num_rows:,} rows in {_files(place)}")


@data.command()
def show(
    row_id: Annotated[str, typer.Argument(metavar="ID", help="Id, or how it starts.")],
    store: _StoreOption = None,
    json_output: _JsonOption = False,
) -> None:
    """Show one measurement."""
    import json

    from rich.text import Text

    from foretell.cli.show import plain_table, print_line, print_table
    from foretell.data.export import plain

    record = _find(_store(store), row_id)
    values = plain(record)
    if json_output:
        print_line(json.dumps(values))
        return
    table = plain_table("", "")
    for name, value in values.items():
        if value not in (None, "", {}, ()):
            shown = Text(_readable(name, value))  # brackets are no markup here
            table.add_row(name.removesuffix("_s").replace("_", " "), shown)
    print_table(table)


@data.command()
def export(
    file: Annotated[Path, typer.Argument(help="Ends in .parquet, .csv or .jsonl.")],
    source: Annotated[
        Optional[list[str]], typer.Option("--source", help="Only of this source; repeatable.")
    ] = None,
    store: _StoreOption = None,
) -> None:
    """Write the measurements to one file."""
    from foretell.cli.show import print_line, progress
    from foretell.data.export import check_format
    from foretell.data.export import export as write
    from foretell.errors import InputError

    check_format(file)
    place = _store(store)
    table = _of_sources(place.table(), source)
    if not table.num_rows:
        what = f"of {' or '.join(source)} " if source else ""
        raise InputError(
            f"{str(place.directory)!r} holds no measurements {what}to export: "
            "'foretell data ls' shows what is there"
        )
    with progress(f"writing {file}"):
        write(table, file)
    print_line(f"{table.num_rows:,} rows written to {file}")


@data.command()
def validate(store: _StoreOption = None, json_output: _JsonOption = False) -> None:
    """Check every file of the store; the exit code is 1 if anything is wrong."""
    import dataclasses
    import json

    from foretell.cli.show import counted_progress, print_line
    from foretell.data.check import check_file

    place = _store(store)
    rows = 0
    found: list[Fault] = []
    with counted_progress("checking") as advance:
        for path in place.files():
            for checked in check_file(path):
                rows += checked.rows
                found += checked.faults
                advance(rows, None)
    if json_output:
        faults = [dataclasses.asdict(fault) for fault in found]
        print_line(json.dumps({"files": len(place.files()), "rows": rows, "faults": faults}))
    else:
        for line in _fault_lines(found):
            print_line(line)
        verdict = f"{len(found):,} wrong" if found else "all sound"
        print_line(f"{rows:,} rows in {_files(place)}: {verdict}")
    if found:
        raise typer.Exit(1)


@data.command()
def compact(store: _StoreOption = None) -> None:
    """Join the files of the store into few and drop rows that are there twice."""
    from foretell.cli.show import print_line, progress

    place = _store(store)
    before = len(place.files())
    with progress("joining files"):
        rows = place.compact()
    print_line(f"{rows:,} rows in {_files(place)}, {before} before")


def _store(directory: Path | None, *, must_exist: bool = True) -> Store:
    from foretell.data.store import Store, default_store

    if directory is None:
        return default_store()
    if directory.exists() and not directory.is_dir():
        raise InputError(f"store {str(directory)!r} is not a directory: name the one to use")
    if must_exist and not directory.exists():
        raise InputError(f"store {str(directory)!r} does not exist: check --store")
    return Store(directory)


def _files(place: Store) -> str:
    count = len(place.files())
    return f"{count} file{'s' if count != 1 else ''} of {place.directory}"


def _find(place: Store, row_id: str) -> Record:
    """The record whose id starts so."""
    import pyarrow.compute as pc

    from foretell.data.columns import to_records
    from foretell.errors import InputError

    table = place.table()
    found = table.filter(pc.starts_with(table["id"], row_id))
    if found.num_rows != 1 or not row_id:
        what = f"the start of {found.num_rows:,} ids" if found.num_rows else "no id"
        raise InputError(
            f"{row_id!r} is {what} in {str(place.directory)!r}: give one of those that "
            "'foretell data export' writes"
        )
    return next(to_records(found))


def _of_sources(table: Any, sources: list[str] | None) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    if not sources:
        return table
    return table.filter(pc.is_in(table["source"], pa.array(sources)))


def _readable(name: str, value: Any) -> str:
    from foretell.data.record import RESOURCES

    if name == "resources":
        value = dict(zip(RESOURCES, value, strict=True))
    if isinstance(value, dict):
        return "\n".join(f"{path} = {_readable(path, v)}" for path, v in _leaves(value))
    if name.endswith("_s") and not name.endswith("_per_s"):
        return format_duration(value)
    if name.endswith("_bytes"):
        return format_bytes(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def _leaves(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """What a nested mapping holds, by names with dots."""
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _fault_lines(found: list[Fault]) -> Iterator[str]:
    for fault in found[:_SHOWN_FAULTS]:
        row = "" if fault.row is None else f" row {fault.row}:"
        yield f"{fault.file}:{row} {fault.what}"
    if len(found) > _SHOWN_FAULTS:
        yield f"and {len(found) - _SHOWN_FAULTS:,} more; --json lists all"
