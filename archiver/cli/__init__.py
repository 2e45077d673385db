"""The commands: one file each, with its options, its run, and its text and JSON printers."""
