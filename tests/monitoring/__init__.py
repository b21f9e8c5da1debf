"""Dashboards, alert rules and what they rest on."""
