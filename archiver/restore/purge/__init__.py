"""Checks that the archive can replace a topic on the target before it is deleted there."""
