"""Schedules: the seed's classes, their extensions, binding, printing."""
