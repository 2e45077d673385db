"""What imports of all formats share: the plan, its note in the archive, and the filling of partitions."""
