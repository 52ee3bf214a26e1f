"""Reads facts out of SGLang's own releases: which messages they can print, which arguments they declare.

Wheels are opened and parsed, never imported or run; what is kept are templates and names, never code. Used when the library
is made; nothing here runs beside a server.
"""
