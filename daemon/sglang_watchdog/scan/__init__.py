"""Blocks of whole lines in, recognised records out; secrets and user text are cut here, before anything else sees a line."""
