"""Tables as lazy frames of Polars. Imported only where Polars is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import polars

if TYPE_CHECKING:
    from ._log import Table

Source = Callable[
    [list[str] | None, polars.Expr | None, int | None, int | None],
    Iterator[polars.DataFrame],
]


def schema(table: Table) -> polars.Schema:
    """The columns of the table."""
    return polars.Schema(table)


def source(table: Table) -> Source:
    """Reads the table for Polars."""

    def read(
        with_columns: list[str] | None,
        predicate: polars.Expr | None,
        n_rows: int | None,
        batch_size: int | None,
    ) -> Iterator[polars.DataFrame]:
        wanted = table
        if with_columns is not None:
            tested = [] if predicate is None else predicate.meta.root_names()
            needed = dict.fromkeys([*with_columns, *tested])
            wanted = table.select(*[name for name in table.columns if name in needed])
        for batch in wanted:
            if n_rows is not None and n_rows <= 0:
                return
            frame = polars.DataFrame(batch)
            if n_rows is not None:
                frame = frame.head(n_rows)
                n_rows -= frame.height
            if predicate is not None:
                frame = frame.filter(predicate)
            if with_columns is not None:
                frame = frame.select(with_columns)
            yield frame

    return read
