"""A module that a token_provider may name, and that cannot be imported."""

raise RuntimeError("no badge")
