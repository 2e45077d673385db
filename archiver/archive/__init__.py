"""The objects in the bucket: keys, segments, JSON notes, index, copies of compacted topics, and their readers."""
