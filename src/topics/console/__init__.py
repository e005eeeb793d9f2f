"""The web console: what its pages look like, what they show, and the history behind the charts.

Knows no HTTP: `topics.api.console` serves it. Guide: docs/guides/console.md.
"""
