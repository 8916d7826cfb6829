"""Parts that algorithms share: the base class, step-size schedules, and the base classes of families."""
