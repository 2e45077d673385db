"""Kernels of the formats in codec/foreign."""
