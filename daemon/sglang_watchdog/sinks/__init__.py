"""Edges that consume changes: ledger, metrics, API, notifications, reports."""
