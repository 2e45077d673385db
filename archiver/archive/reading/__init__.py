"""Reads archived topics: finds them, reads their records, and reports totals and missing objects."""
