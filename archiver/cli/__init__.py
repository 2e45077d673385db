"""What is typed, printed and returned.

- arguments: what can be typed: commands, their arguments, and what each may be
- backup_outcome: what came of `backup --until-end`
- commands: the commands: each takes what was typed, makes one call, tells what came of it, and returns the exit code
- main: the program: from what was typed to an exit code
- output: what a user reads: results on standard output, complaints on standard error
- printing: results as text and as rows for JSON: lines that a command prints
- topics: `archiver topics`: its run, and its two printers
"""
