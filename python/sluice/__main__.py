"""The verbs in this Python: `python -m sluice run p.toml`, for pipelines with plugins in Python."""

from __future__ import annotations

import sys

from . import _native
from ._errors import ConfigError, SluiceError
from ._results import messages


def main(arguments: list[str]) -> int:
    """Runs a verb, prints what it says, and returns its exit code."""
    try:
        exit, text, said, _ = _native.run_verb(arguments)
    except SluiceError as error:
        # Mistakes in pipeline files say so themselves.
        is_rendered = isinstance(error, ConfigError) and error.diagnostics
        print(error if is_rendered else f"error: {error}", file=sys.stderr)
        return 2 if isinstance(error, ConfigError) else 1
    except KeyboardInterrupt:
        return 130
    sys.stdout.write(text)
    for message in messages(said):
        print(message.text if message.kind == "summary" else message, file=sys.stderr)
    return exit


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
