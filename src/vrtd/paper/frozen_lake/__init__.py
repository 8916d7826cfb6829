"""Figure 2: batch sizes on Frozen Lake."""
