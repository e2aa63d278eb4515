"""Pictures of schedules, machines and timelines, and files for viewers of traces."""
