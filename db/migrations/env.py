"""Run by alembic with the connection that db/migrate.py opened; the transaction is the caller's."""

from alembic import context

from greenfast.db.models import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    transactional_ddl=True,
    render_as_batch=True,
)
context.run_migrations()
