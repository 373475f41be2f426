"""What a run would take, before it is run: updates, disk, memory per rank, traffic between ranks."""

from footplate.planning.memory import MemoryPlan, plan_memory
from footplate.planning.run import RunPlan, plan_run
from footplate.planning.table import format_plan

__all__ = ["MemoryPlan", "RunPlan", "format_plan", "plan_memory", "plan_run"]
