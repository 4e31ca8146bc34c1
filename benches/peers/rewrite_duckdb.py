"""Writes the rows of a Parquet file again with DuckDB, and prints wall and CPU seconds.

    rewrite_duckdb.py IN OUT

"""

import sys

import duckdb
from timed import timed

source, out = sys.argv[1:]
database = duckdb.connect()
database.execute("SET enable_progress_bar = false")
database.execute("CREATE TABLE rows AS SELECT * FROM read_parquet($path)", {"path": source})
quoted = out.replace("'", "''")
timed(lambda: database.execute(
    f"COPY rows TO '{quoted}' (FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 3)"))
