"""Flag triage: what each flag of a launch command does in this release, on this model and hardware."""
