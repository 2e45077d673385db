"""Plans a sweep: reads topics, limits, holds and objects, and decides what to delete. Deletes nothing."""
