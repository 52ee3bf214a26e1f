"""`python -m sglang_watchdog` is the command."""

import sys

from .cli.main import main

sys.exit(main())
