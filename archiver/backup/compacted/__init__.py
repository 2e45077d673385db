"""Copies of compacted topics: two instances take turns to read each log anew."""
