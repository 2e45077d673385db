"""The commands, with their options, runs and printers; and the options and output that they share."""
