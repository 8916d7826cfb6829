"""An audit of the theory: both sides of every statement of the paper, on a list of chains."""
