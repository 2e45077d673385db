"""Retention sweeps: plan, show, prove, and delete expired objects, and objects under `control/` that nothing needs any more (debris)."""
