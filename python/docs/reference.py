#!/usr/bin/env python3
"""Makes `reference.md`, of the docstrings of the package: run it where the package is installed.

python python/docs/reference.py
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import sluice

PAGE = Path(__file__).with_name("reference.md")
WIDTH = 100
BEGIN = """# The Python package, name by name

Made of the docstrings by `python/docs/reference.py`; a test compares the two. `python/README.md`
has the overview.
"""
GROUPS = [
    ("Logs", ["open", "Log", "Table", "Event", "Batch"]),
    ("Verbs", ["convert", "run", "check", "verify", "check_log", "report"]),
    ("Plugins", ["source", "stage", "sink"]),
    ("Results", [
        "Info", "FileInfo", "ChannelInfo", "Damage", "Result", "Output", "Message", "Verified",
        "LogCheck",
    ]),
    ("Exceptions", ["SluiceError", "ConfigError", "InputError", "DamageError", "Diagnostic"]),
]  # fmt: skip


def page() -> str:
    """The whole page."""
    parts = [BEGIN]
    for title, names in GROUPS:
        parts.append(f"## {title}\n")
        for name in names:
            parts.extend(entry(f"sluice.{name}", getattr(sluice, name), "###"))
    return "\n".join(parts)


def entry(name: str, value: Any, level: str) -> Iterator[str]:
    """A name, how it is called, and its docstring; then the members of a class."""
    yield f"{level} `{name}`\n"
    if inspect.isclass(value):
        bases = [base.__name__ for base in value.__bases__ if base is not object]
        if bases:
            yield f"A kind of {' and '.join(f'`{base}`' for base in bases)}.\n"
    elif callable(value):
        yield f"```python\n{called(name, value)}\n```\n"
    yield from described(inspect.getdoc(value) or "")
    if inspect.isclass(value):
        yield from fields(value)
        for member, each in members(value):
            yield from entry(f"{value.__name__}.{member}", each, "####")


def called(name: str, value: Any) -> str:
    """The signature, on several lines if it is long."""
    signature = inspect.signature(value)
    own = [each for each in signature.parameters.values() if each.name != "self"]
    returns = signature.return_annotation
    arrow = "" if returns is inspect.Signature.empty else f" -> {returns}"
    words = written(own)
    line = f"{name}({', '.join(words)}){arrow}"
    if len(line) <= WIDTH:
        return line
    return "\n".join([f"{name}(", *(f"    {word}," for word in words), f"){arrow}"])


def written(parameters: list[inspect.Parameter]) -> list[str]:
    """Parameters as in a definition, with the star before those that are given by name only."""
    words, is_keyword = [], False
    for each in parameters:
        if each.kind is inspect.Parameter.KEYWORD_ONLY and not is_keyword:
            words.append("*")
            is_keyword = True
        words.append(str(each))
    return words


def members(value: type) -> list[tuple[str, Any]]:
    """The public methods and properties of a class itself that have a docstring."""
    plain = getattr(value, "_fields", ())
    own = [
        (name, each)
        for name, each in vars(value).items()
        if not name.startswith("_") and name not in plain
    ]
    return [
        (name, each)
        for name, each in sorted(own)
        if inspect.getdoc(each)
        and (inspect.isroutine(each) or inspect.isdatadescriptor(each))
    ]


def fields(value: type) -> Iterator[str]:
    """The fields of a plain tuple."""
    names = getattr(value, "_fields", ())
    if names:
        types = value.__annotations__
        yield "\n".join(f"- `{name}`: `{written_type(types[name])}`" for name in names) + "\n"


def written_type(annotation: Any) -> str:
    """A type as it is written."""
    return getattr(annotation, "__forward_arg__", None) or str(annotation)


def described(text: str) -> Iterator[str]:
    """A docstring as Markdown: parameters as a list, examples as code."""
    for part in re.split(r"\n\n+", text):
        title = re.match(r"(\w+)\n-+\n?", part)
        if title:
            yield f"{title[1]}:\n"
            part = part[title.end() :]
        if not part:
            continue
        if part.startswith(">>>"):
            yield f"```python\n{part}\n```\n"
        elif title and title[1] == "Parameters":
            yield "\n".join(parameters(part)) + "\n"
        else:
            yield f"{part}\n"


def parameters(part: str) -> Iterator[str]:
    """The parameters: names, and below each, indented, what it is."""
    for line in part.splitlines():
        if line.startswith("    "):
            yield f"  {line.strip()}"
        else:
            names = ", ".join(f"`{name}`" for name in line.split(", "))
            yield f"- {names}:"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
