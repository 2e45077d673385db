"""The objects in the bucket: keys, segments, notes, index, copies, and their readers."""
