"""The loop scheduler of pipe machines: least interval, stages and versions, with its proof."""

from explorer.constraints.loop_schedule.line import schedule_line
from explorer.constraints.loop_schedule.scheduler import Effort, schedule_loop
from explorer.constraints.loop_schedule.verify import broken_constraint

__all__ = ["Effort", "broken_constraint", "schedule_line", "schedule_loop"]
