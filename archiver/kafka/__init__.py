"""Everything that talks to brokers. Reading order: settings, wire, codes, calls, client; then fetch, produce, admin."""
