"""Carries out a sweep: proves, notes and deletes expired objects and debris, and reports the result."""
