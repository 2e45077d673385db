"""Loads and validates the typed configuration, once per process. No other room reads variables of the environment."""
