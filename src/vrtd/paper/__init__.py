"""Reproduction of Xu, Wang, Zhou and Liang (ICLR 2020): experiments, claims and the function `reproduce`."""
