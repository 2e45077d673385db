"""Loops over bytes, compiled by numba. The only user of numba."""
