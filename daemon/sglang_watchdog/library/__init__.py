"""Signature files: read, check, compile, prove."""
