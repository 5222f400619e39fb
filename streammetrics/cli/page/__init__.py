"""The report: one HTML page with the results of a pass, to be looked at and sent around."""

from .page import render as render
