"""The page of the reference is that of the docstrings."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import sluice

DOCS = Path(__file__).resolve().parent.parent / "docs"


def test_the_reference_is_current_and_names_everything() -> None:
    spec = importlib.util.spec_from_file_location("reference", DOCS / "reference.py")
    assert spec is not None and spec.loader is not None
    reference = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reference)
    named = {name for _, names in reference.GROUPS for name in names}
    assert named == set(sluice.__all__) - {"__version__"}
    expected = (DOCS / "reference.md").read_text(encoding="utf-8")
    assert reference.page() == expected, "run `python python/docs/reference.py`"
