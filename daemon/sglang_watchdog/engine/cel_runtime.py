"""The CEL runtime without its command line.

The package imports its own command line (typer, prompt_toolkit) on import, which takes longer than all of our start. An empty
module in its place is all that the runtime needs; `tests/engine/test_conditions.py` holds the package to that.
"""

import sys
import types

sys.modules.setdefault("cel.cli", types.ModuleType("cel.cli"))

import cel  # noqa: E402 - after the line that makes it quick

__all__ = ["cel"]
