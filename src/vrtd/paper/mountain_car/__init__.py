"""Figure 3: Mountain Car, where the solution is not known."""
