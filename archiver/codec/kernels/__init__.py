"""Loops over bytes that numba compiles. Only this room knows numba."""
