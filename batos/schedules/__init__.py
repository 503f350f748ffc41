"""Schedules: briefs that become missions at times their user set, exactly once for each time, over restarts and changes of the clock."""
