"""Figure 1.5: batch sizes on the random MDP, one trajectory."""
