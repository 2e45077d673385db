"""Where consumer groups stand.

- keeper: how the positions of consumer groups are kept: by archiving their own topic, or as facts
- own_group: which consumer group the backups of an archive share
"""
