"""Prints the result of a DuckDB query as CSV.

    query_duckdb.py QUERY
"""

import csv
import sys

import duckdb

database = duckdb.connect()
database.execute("SET enable_progress_bar = false")
answer = database.execute(sys.argv[1])
writer = csv.writer(sys.stdout)
writer.writerow(column[0] for column in answer.description)
writer.writerows(answer.fetchall())
