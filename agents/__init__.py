"""Agents: policies, learning, evaluation, report."""
