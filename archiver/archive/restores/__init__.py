"""The files that a restore leaves in the archive: noted objects, chosen records, offset maps; and the objects it protects from sweeps."""
