"""What is found on this machine: Java, jars, caches, their owners, and this program's edition."""
