"""Loads and validates the typed configuration, once per process. The only reader of the environment."""
