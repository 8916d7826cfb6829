"""Figure 1: batch sizes on the random MDP, independent samples."""
