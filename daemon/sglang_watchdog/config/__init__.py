"""What an operator sets, and the reading of YAML with positions that settings and signatures share."""
