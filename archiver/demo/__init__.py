"""Runs the quick start `archiver demo`: a real broker, an embedded S3, and the steps."""

from archiver.demo.story import run_demo

__all__ = ["run_demo"]
