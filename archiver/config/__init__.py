"""The configuration: loaded, typed and validated once. The only reader of the environment."""
