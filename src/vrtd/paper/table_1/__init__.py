"""Table 1: the orders of errors and costs, with numbers."""
