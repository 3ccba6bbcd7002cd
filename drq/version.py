"""The version, for records and packages."""

__version__ = "0.2.0"
