"""What the user has configured."""
