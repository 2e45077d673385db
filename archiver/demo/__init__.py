"""The quick start: a shop's orders on a real broker are archived, lost, brought back, and proved to be the same.

Reading order: shop (the records), teller (how it is told), stage (what is started, and how it ends), story.
"""

from archiver.demo.story import run_demo

__all__ = ["run_demo"]
