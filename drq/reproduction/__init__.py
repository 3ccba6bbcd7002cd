"""Repeat the paper's tables, figures and claims, and compare them with its numbers."""
