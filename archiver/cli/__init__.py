"""What is typed, printed and returned."""
