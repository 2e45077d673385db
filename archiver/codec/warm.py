"""Compile all kernels now, so that no later start has to: `python -m archiver.codec.warm`."""

import importlib
import logging

KERNEL_MODULES = (
    "archiver.codec.batch_kernels",
    "archiver.codec.digest",
    "archiver.codec.avro_encode",
    "archiver.codec.avro_decode",
    "archiver.codec.partitioner",
    "archiver.codec.row_kernels",
    "archiver.codec.scan_kernels",
    "archiver.codec.run_kernels",
)


def compile_kernels() -> None:
    """Import every module with kernels: explicit signatures compile at import, and land in the cache."""
    for name in KERNEL_MODULES:
        importlib.import_module(name)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    compile_kernels()
