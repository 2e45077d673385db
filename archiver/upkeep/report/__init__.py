"""The page of `archiver report`: what the archive holds over time, collected once, and written as one HTML file."""
