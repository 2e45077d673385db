"""The one typed configuration, validated once; the only reader of the environment."""
