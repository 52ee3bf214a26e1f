"""Tells people: Alertmanager, signed webhooks, and chats through apprise. What is still to be told is in the ledger."""
