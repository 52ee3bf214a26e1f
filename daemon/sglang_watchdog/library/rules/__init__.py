"""The lint rules, by what they look at: patterns, conditions, proofs, identity."""
