"""Tells which code path an SGLang server is really on and what holds it back."""
