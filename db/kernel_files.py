"""The files that searches ran with, each text once."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from greenfast.db import convert
from greenfast.db.base import Part, found_search
from greenfast.db.dialects import insert_once, now_s
from greenfast.db.models import KernelFileRecord, ManifestRecord
from greenfast.search.digest import text_digest
from greenfast.search.errors import Fault
from greenfast.search.kernels.frozen import KernelFiles


class FrozenFiles(Part):
    """The part of the store that keeps kernels as they were."""

    def frozen_files(self, search_id: str) -> KernelFiles | None:
        """What the search ran with; None for one that was submitted before files were frozen."""
        with self._database.reading() as session:
            name = found_search(session, search_id).manifest_digest
            if name is None:
                return None
            record = session.get(ManifestRecord, name)
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
            what = f"the stored {damaged[0]}" if damaged else "the list of files"
            raise Fault(
                f"{what} of search {search_id} is not what its digest names",
                code="source_damaged",
                mend="restore the database from a backup copy",
            )
        return KernelFiles(tuple((path, texts[content]) for path, content in manifest))


def store_files(session: Session, files: KernelFiles) -> str:
    """Keep what is not there yet; the digest that names all of it."""
    for (_, text), (_, content) in zip(files.files, files.manifest, strict=True):
        insert_once(
            session, KernelFileRecord, {"digest": content, "text": text, "created_at": now_s()}
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
