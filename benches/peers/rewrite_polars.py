"""Writes the rows of a Parquet file again with polars, and prints wall and CPU seconds.

    rewrite_polars.py IN OUT

"""

import sys

import polars as pl
from timed import timed

source, out = sys.argv[1:]
rows = pl.read_parquet(source)
timed(lambda: rows.write_parquet(out, compression="zstd", compression_level=3))
