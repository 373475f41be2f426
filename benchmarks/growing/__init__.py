"""How cost grows: one script per question, which measures one size."""
