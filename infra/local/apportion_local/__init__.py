"""Starts and stops the local stack. Standard library only: it must run before anything is installed."""
