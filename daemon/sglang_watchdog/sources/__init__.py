"""Async edges that produce blocks of bytes, samples and probe answers."""
