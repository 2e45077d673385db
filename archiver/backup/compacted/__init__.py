"""Keeps copies of compacted topics in the archive, made in turns by two backup instances, so that one whole copy always stands (decision 40)."""
