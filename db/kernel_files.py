"""The kernel files that searches ran with, each text stored once."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from greenfast.db import convert
from greenfast.db.base import Part, search_record
from greenfast.db.dialects import insert_once, now_s, once
from greenfast.db.models import KernelFileRecord, ManifestRecord, table_of
from greenfast.search.digest import text_digest
from greenfast.search.errors import Fault
from greenfast.search.kernels.frozen import KernelFiles


class FrozenFiles(Part):
    """The part of the store that keeps the kernel files of each search."""

    def frozen_files(self, search_id: str) -> KernelFiles | None:
        """The kernel files of a search; None for a search of a version that did not keep them.

        Fault `source_damaged` when a stored text does not match its digest.
        """
        with self._database.reading() as session:
            manifest_digest = search_record(session, search_id).manifest_digest
            if manifest_digest is None:
                return None
            record = session.get(ManifestRecord, manifest_digest)
            manifest = convert.pairs_of("files", record.files) if record is not None else ()
            rows = session.execute(
                select(KernelFileRecord.digest, KernelFileRecord.text).where(
                    KernelFileRecord.digest.in_([content for _, content in manifest])
                )
            )
            texts = {row.digest: row.text for row in rows}
        damaged = [
            path for path, content in manifest if text_digest(texts.get(content, "")) != content
        ]
        if damaged or not manifest:
            part = f"the stored {damaged[0]}" if damaged else "the list of files"
            raise Fault(
                f"{part} of search {search_id} does not match its digest",
                code="source_damaged",
                mend="restore the database from a backup copy",
            )
        return KernelFiles(tuple((path, texts[content]) for path, content in manifest))


def store_files(session: Session, files: KernelFiles) -> str:
    """Store the files that are not stored yet; returns the digest of their manifest."""
    connection = session.connection()
    connection.execute(
        once(connection.dialect.name, table_of(KernelFileRecord)).values(created_at=now_s()),
        [
            {"digest": content, "text": text}
            for (_, text), (_, content) in zip(files.files, files.manifest, strict=True)
        ],
    )
    insert_once(
        session,
        ManifestRecord,
        {
            "digest": files.digest,
            "files": convert.pairs_json("files", files.manifest),
            "created_at": now_s(),
        },
    )
    return files.digest
