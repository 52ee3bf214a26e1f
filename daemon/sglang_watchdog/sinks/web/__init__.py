"""The HTTP surface: API, status page, documentation and metrics on one port."""
