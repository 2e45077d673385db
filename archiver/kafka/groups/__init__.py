"""Consumer groups: membership, and positions read and set."""
