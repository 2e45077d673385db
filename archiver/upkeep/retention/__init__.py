"""Retention sweeps: plan, show, prove, and delete expired objects."""
