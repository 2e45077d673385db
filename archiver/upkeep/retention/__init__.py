"""Retention sweeps: plan, show, prove, and delete expired objects and debris under `control/`."""
