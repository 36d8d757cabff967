"""What commands, REST and pages show: schemas, lists, progress, problems."""
