"""What people read: lifts, alarms, sample ratios, winners, plans, and the figures of all of them."""
