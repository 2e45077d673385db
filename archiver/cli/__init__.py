"""What is typed, printed and returned: one file a command, with its options, its run, and its two printers.

- backup: `archiver backup`
- cat: `archiver cat`
- commands: which commands there are
- config: `archiver config`
- demo: `archiver demo`
- inspect: `archiver inspect`
- ls: `archiver ls`
- main: the program: from what was typed to an exit code
- options: what several commands can be given
- output: what a user reads: results on standard output, complaints on standard error
- query: `archiver query`
- restore: `archiver restore`
- restore_preview: `archiver restore --dry-run`
- restore_report: what came of a restore, as text and as JSON
- spark_env: `archiver spark-env`
- spelling: moments, tables, and what is too long for a terminal
- topics: `archiver topics`
- verify: `archiver verify`
"""
