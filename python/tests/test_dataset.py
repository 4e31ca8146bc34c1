"""The dataset for PyTorch in the README: its workers share the events."""

from __future__ import annotations

import doctest
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import sluice

README = Path(__file__).resolve().parent.parent / "README.md"


def test_workers_share_the_events(
    drive: Path, torch: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    examples = doctest.DocTestParser().get_examples(README.read_text(encoding="utf-8"))
    names: dict[str, Any] = {"sluice": sluice}
    for example in examples:
        if "torch" in example.source:
            exec(example.source, names)
    images = names["Images"](drive, "CAM_THUMB_RFC")
    alone = list(images)
    parts = []
    for number in range(2):
        worker = SimpleNamespace(id=number, num_workers=2)
        monkeypatch.setattr(
            sys.modules["torch.utils.data"], "get_worker_info", lambda worker=worker: worker
        )
        parts.append(list(images))
    assert len(alone) == 20 and [len(part) for part in parts] == [10, 10]
    assert sorted(parts[0] + parts[1]) == sorted(alone)
