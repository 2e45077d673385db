"""The client of a cluster: connections, requests in the wire format, errors."""
