"""Administers topics: creates, configures and deletes them, and asks for sizes and rights."""
