"""Two counter-examples: the paper's, to a step of an earlier analysis, and one to the paper's own Theorem 1."""
