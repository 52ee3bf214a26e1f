"""The daemon's settings: YAML files, then environment, then flags; validated once, passed down as plain values."""
