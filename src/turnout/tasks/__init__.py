"""A video task, from its submission to its file: the rules (`task_rules`, `fairness_rules`, `lease_rules`, `video_rules`), the
log, queue and events in Redis with their scripts, the routes, files, links and live events that its owner sees, webhooks,
and what puts back or ends what nobody looks after (`housekeeping`)."""
