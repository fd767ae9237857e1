"""What people read: figures, and later lift, balance checks, prices and plans."""
