"""Notes about topics, sweeps and restores: lives of topics, holds, retention settings, reports, ranges of deleted offsets."""
