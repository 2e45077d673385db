"""What the user said, typed and checked once.

- kafka_keys: the keys of a `kafka:` section
- keyfile: A YAML file as dotted keys with their lines
- model: the one typed configuration, validated once; the only reader of the environment
- reference: every key of the configuration, told from the model itself
"""
