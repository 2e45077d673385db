"""The process of an instance: works on assigned partitions, and carries out the turns' decisions."""
