"""Views that commands, REST and pages share: schemas, lists, progress, problems."""
