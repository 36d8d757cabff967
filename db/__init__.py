"""The database: one store behind which SQLAlchemy, alembic and SQL stay."""
