"""Jobs: schedules, and the scheduler that starts their runs."""
