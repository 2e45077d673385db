"""Parsed and compact values: columns, JSON of unknown writers, addresses."""
