"""Surveys, creates, configures and finishes the topics that a restore fills."""
