"""What a restore leaves in the archive: noted objects, chosen records, offset maps; and what it pins against sweeps."""
