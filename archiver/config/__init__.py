"""The configuration: what the user said, typed and checked once.

- environment: the variables of the environment; only this module reads them
- kafka_keys: the keys of a `kafka:` section
- keyfile: a YAML file as dotted keys with their lines
- load: loads a configuration from a file, or makes one of a bucket's address, and checks it
- model: the typed configuration: every key, what it takes, and its default
- quantities: parses sizes, durations and times as people write them, and spells them again
- reference: the reference of all keys, made of the model; and the values that hold now
- retention: what a retention sweep goes by: whose limits, and what it never shortens
- section: what all parts of the configuration have in common: how a section is spelled, and the kinds of values
"""
