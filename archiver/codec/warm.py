"""Compiles all kernels ahead of time, for images: `python -m archiver.codec.warm`."""

import importlib
import logging

KERNEL_MODULES = (
    "archiver.codec.kernels.batches",
    "archiver.codec.kernels.messages",
    "archiver.codec.kernels.foreign.messages_07",
    "archiver.codec.kernels.foreign.osodevops",
    "archiver.codec.kernels.foreign.foreign_avro",
    "archiver.codec.kernels.digest",
    "archiver.codec.kernels.avro_encode",
    "archiver.codec.kernels.avro_decode",
    "archiver.codec.kernels.murmur2",
    "archiver.codec.kernels.rows",
    "archiver.codec.kernels.scan",
    "archiver.codec.kernels.runs",
    "archiver.codec.kernels.commits",
    "archiver.codec.kernels.foreign.kafka_backup",
)


def compile_kernels() -> None:
    """Import every module with kernels: a kernel is compiled when its module is imported, and kept in the cache."""
    for name in KERNEL_MODULES:
        importlib.import_module(name)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    compile_kernels()
