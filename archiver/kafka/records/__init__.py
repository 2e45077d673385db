"""Fetches and produces record batches, and asks leaders about their logs."""
