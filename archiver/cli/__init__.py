"""What is typed, printed and returned: one file a command, with its options, its run, and its two printers.

- backup: `archiver backup`
- cat: `archiver cat`
- chosen_positions: options that choose positions of consumer groups: as of when, of which groups, in which topics
- commands: the table of commands: for each its module and its summary
- config: `archiver config`
- demo: `archiver demo`
- groups: `archiver groups`: its commands
- groups_applied: the two printers of what came of setting groups, or of setting them back
- groups_apply: `archiver groups apply`: its options, its run, and the two printers of what became of the groups of a restore
- groups_fold: `archiver groups fold`: its options, its run, and its two printers
- groups_rollback: `archiver groups rollback`
- groups_show: `archiver groups show`: its options, its run, and its two printers
- groups_translate: `archiver groups translate`: its options, its run, and its two printers
- inspect: `archiver inspect`
- ls: `archiver ls`
- main: the program: parses what was typed, runs the command, and returns its exit code
- options: options that several commands have, and the types of their values
- output: prints results to standard output, and complaints to standard error
- query: `archiver query`
- restore: `archiver restore`
- restore_preview: `archiver restore --dry-run`
- restore_report: the two printers of `archiver restore`
- spark_env: `archiver spark-env`
- spelling: how printers spell moments, tables, and lists that are too long for a terminal
- topics: `archiver topics`
- verify: `archiver verify`
"""
