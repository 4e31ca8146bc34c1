"""Robot sensor logs as Arrow tables, and conversion between their formats.

>>> import sluice
>>> log = sluice.open("drive.lcm")
>>> log.table("POSE").columns[:3]
['timestamp', 'source', 'sequence']

`open` reads logs: `Log.table` and `Log.events` are what is in them, `Log.info` says what that is.
`convert`, `run`, `check`, `verify`, `report` and `check_log` are the verbs of the program `sluice`.
`source`, `stage` and `sink` make plugins of Python classes and functions.
"""

from ._errors import ConfigError, DamageError, Diagnostic, InputError, SluiceError
from ._log import Log, Table, open
from ._native import Batch, Event, __version__
from ._results import (
    ChannelInfo,
    Damage,
    FileInfo,
    Info,
    LogCheck,
    Message,
    Output,
    Result,
    Verified,
)
from ._plugins import sink, source, stage
from ._verbs import check, check_log, convert, report, run, verify

__all__ = [
    "Batch",
    "ChannelInfo",
    "ConfigError",
    "Damage",
    "DamageError",
    "Diagnostic",
    "Event",
    "FileInfo",
    "Info",
    "InputError",
    "Log",
    "LogCheck",
    "Message",
    "Output",
    "Result",
    "SluiceError",
    "Table",
    "Verified",
    "__version__",
    "check",
    "check_log",
    "convert",
    "open",
    "report",
    "run",
    "sink",
    "source",
    "stage",
    "verify",
]
