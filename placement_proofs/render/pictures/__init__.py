"""Pictures of compositions, plans, bills, schedules and counterexamples, as SVG."""
