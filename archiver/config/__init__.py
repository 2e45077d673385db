"""What the user said, typed and checked once.

- environment: variables of the environment
- kafka_keys: the keys of a `kafka:` section
- keyfile: A YAML file as dotted keys with their lines
- load: from a file, or from the address of a bucket, to a checked configuration
- model: the one typed configuration, validated once; the only reader of the environment
- quantities: sizes, durations and times as people write them, and back
- reference: every key of the configuration, told from the model itself
"""
