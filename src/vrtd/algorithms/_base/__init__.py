"""What algorithms share: the base class, step-size schedules, and the bases of families."""
