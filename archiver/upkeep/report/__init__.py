"""The page of `archiver report`: collects the data of the archive, and writes one HTML file."""
