"""Plans the positions of consumer groups that a restore sets on the target."""
