"""The engine over files: check, explain, replay. No asyncio."""
