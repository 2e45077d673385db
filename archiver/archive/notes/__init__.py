"""Notes about topics and sweeps: lives of topics, holds, retention settings, reports, ranges of deleted offsets."""
