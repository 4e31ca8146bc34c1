"""Tables as lazy frames of Polars. Imported only where Polars is."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

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
        is_narrowed = False
        # Of rows that are limited, the first ones before the condition count.
        if predicate is not None and n_rows is None:
            options = pushed_down(predicate, wanted._channel is None)
            wanted, is_narrowed = wanted._narrowed(options)
        # A condition that no event meets is no mistake.
        for batch in wanted._batches(reports_names=not is_narrowed):
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


def pushed_down(predicate: polars.Expr, is_of_all: bool) -> dict[str, str]:
    """What a log can test by itself of a condition: times, and the channel of a table of all.

    At least the rows that meet the condition are left: it is still applied to them.
    """
    try:
        written = json.loads(predicate.meta.serialize(format="json"))
    except (ValueError, polars.exceptions.PolarsError):
        # The form is of no fixed shape: what is not known stays in Polars.
        return {}
    first: int | None = None
    last: int | None = None
    options = {}
    for column, operator, value in _comparisons(written):
        nanoseconds = _nanoseconds(value)
        if column == "timestamp" and nanoseconds is not None:
            if operator in ("Gt", "GtEq", "Eq"):
                after = nanoseconds + (operator == "Gt")
                first = after if first is None else max(first, after)
            if operator in ("Lt", "LtEq", "Eq"):
                before = nanoseconds + (operator != "Lt")
                last = before if last is None else min(last, before)
        elif column == "channel" and is_of_all and operator == "Eq":
            name = value.get("String") if isinstance(value, dict) else None
            if isinstance(name, str) and _is_plain(name):
                options["channel"] = name
    if first is not None and last is not None and first >= last:
        # The program refuses such a window. No row meets the condition.
        return options
    if first is not None:
        options["start"] = f"{first}ns"
    if last is not None:
        options["end"] = f"{last}ns"
    return options


_MIRRORED = {"Gt": "Lt", "GtEq": "LtEq", "Lt": "Gt", "LtEq": "GtEq", "Eq": "Eq"}
# The ends of a range, by its `closed`.
_ENDS = {"Both": ("GtEq", "LtEq"), "Left": ("GtEq", "Lt"), "Right": ("Gt", "LtEq"),
         "None": ("Gt", "Lt")}
_UNITS = {"Nanoseconds": 1, "Microseconds": 1000, "Milliseconds": 1_000_000}


def _comparisons(written: Any) -> Iterator[tuple[str, str, Any]]:
    """The comparisons of a column with a value of which all must hold."""
    match written:
        case {"BinaryExpr": {"left": left, "op": "And", "right": right}}:
            yield from _comparisons(left)
            yield from _comparisons(right)
        case {
            "BinaryExpr": {
                "left": {"Column": str(column)},
                "op": str(operator),
                "right": {"Literal": {"Scalar": value}},
            }
        } if operator in _MIRRORED:
            yield column, operator, value
        case {
            "BinaryExpr": {
                "left": {"Literal": {"Scalar": value}},
                "op": str(operator),
                "right": {"Column": str(column)},
            }
        } if operator in _MIRRORED:
            yield column, _MIRRORED[operator], value
        case {
            "Function": {
                "input": [
                    {"Column": str(column)},
                    {"Literal": {"Scalar": low}},
                    {"Literal": {"Scalar": high}},
                ],
                "function": {"Boolean": {"IsBetween": {"closed": str(closed)}}},
            }
        } if closed in _ENDS:
            for operator, value in zip(_ENDS[closed], (low, high), strict=True):
                yield column, operator, value


def _nanoseconds(value: Any) -> int | None:
    match value:
        case {"Datetime": [int(number), str(unit), *_]} if unit in _UNITS:
            nanoseconds = number * _UNITS[unit]
            # One more or less is still a time.
            return nanoseconds if abs(nanoseconds) < (1 << 63) - 1 else None
    return None


def _is_plain(name: str) -> bool:
    """Whether a pattern of this text means this channel."""
    return not set(name) & set("*?[]{}\\") and not name.startswith("re:")
