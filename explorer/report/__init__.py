"""Reports: tables and figures of a run, and an HTML page of both."""

from explorer.report.figures import plot_marginals, plot_progress, plot_time_against
from explorer.report.memory import plot_memory_map
from explorer.report.page import html, write_html
from explorer.report.tables import marginals, trial_frame

__all__ = [
    "html",
    "marginals",
    "plot_marginals",
    "plot_memory_map",
    "plot_progress",
    "plot_time_against",
    "trial_frame",
    "write_html",
]
