"""Where consumer groups stand."""
