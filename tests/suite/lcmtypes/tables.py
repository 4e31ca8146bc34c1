"""Reads the tables of a log with pyarrow, and writes them again without the metadata of Sluice.

Reads `tables/` and `expected.jsonl` in the working directory; creates `pyarrow/` and `duckdb/` with the
same tables as written by these.
"""

import base64
import json
import math
import shutil
from pathlib import Path
from urllib.parse import unquote

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

OWN = {"timestamp", "source", "channel", "sequence"}


def shown(value):
    if isinstance(value, dict):
        return {name: shown(field) for name, field in value.items()}
    if isinstance(value, list):
        return [shown(part) for part in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


expected = {}
for line in open("expected.jsonl"):
    event = json.loads(line)
    expected.setdefault(event["channel"], []).append(event["fields"])

seen = set()
for file in sorted(Path("tables").rglob("*.parquet")):
    channel = unquote(file.parent.name.removeprefix("channel="))
    table = pq.ParquetFile(file).read()
    assert "payload" not in table.column_names, file
    rows = table.sort_by("sequence").to_pylist()
    read = [{name: shown(field) for name, field in row.items() if name not in OWN} for row in rows]
    # As text, which distinguishes -0.0 from 0.0, and integers from floats.
    assert json.dumps(read) == json.dumps(expected[channel]), f"{channel}\n{read}\n{expected[channel]}"
    seen.add(channel)

    plain = pa.schema([pa.field(name, table.schema.field(name).type) for name in table.column_names])
    copies = [Path(tool, file.parent.name, file.name) for tool in ["pyarrow", "duckdb"]]
    for copy in copies:
        copy.parent.mkdir(parents=True)
        if table.column_names[-1] == "value":
            # All enums have this single column: only the table knows which enum it is.
            shutil.copy(file, copy)
    if table.column_names[-1] != "value":
        pq.write_table(pa.table(table.columns, schema=plain), copies[0], store_schema=False)
        duckdb.sql(f"copy (from read_parquet('{file}', hive_partitioning = false)) to '{copies[1]}'")
assert seen == set(expected), seen ^ set(expected)
