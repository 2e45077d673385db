"""Translates positions of consumer groups for a target cluster, sets them there, and rolls them back."""
