"""The result of a restore and of its dry run, for printers and exit codes."""
