"""Uploads: segments that others build, and that become a new topic in one step.

    begin: take an id, durably → a directory for the files
    attach: rename into place → judge every byte → sync → one batch on the WAL

Owns the table of uploads, which lives in memory, and the directory `uploads/`.
Keeps: before that batch is synced there is no topic, after it there is the whole one. What was
judged is out of the reach of builders, of which one may still run that was taken for dead. Files
that the WAL does not speak for go with the next start: a staged one with `uploads/`, a renamed one
because no topic has its id. An id is given once, so old frames fit no later topic.
Reference: docs/reference/uploads.md.
"""

import secrets
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from topics.clock import Clock
from topics.config import ServerConfig
from topics.engine.attach import check_order, check_segment, check_times
from topics.engine.stores import Stores
from topics.engine.topics.registry import Registry
from topics.engine.topics.topic import Topic
from topics.errors import (
    DiskFull,
    FileMissing,
    LimitReached,
    RequestError,
    StorageError,
    TooManyFiles,
    UploadNotFound,
)
from topics.limits import MAX_UPLOADS, UPLOAD_MS, check_topic_name
from topics.model.topic_config import TopicConfig
from topics.model.uploads import BuiltSegment, UploadState
from topics.storage.disk import paths
from topics.storage.disk.data_dir import remove_tree
from topics.storage.segments.tag_runs import TagRuns


class Upload:
    """One topic in the making."""

    __slots__ = ("config", "expires_s", "id", "name", "owner", "topic_id")

    def __init__(
        self, name: str, config: TopicConfig, *, topic_id: int, owner: str, expires_s: float
    ) -> None:
        self.id = secrets.token_hex(16)
        self.name = name
        self.config = config
        self.topic_id = topic_id
        self.owner = owner
        self.expires_s = expires_s

    @property
    def directory(self) -> str:
        return paths.upload_dir(self.id)


class Uploads:
    """Every upload of one engine."""

    def __init__(
        self, registry: Registry, stores: Stores, config: ServerConfig, *, clock: Clock
    ) -> None:
        self._registry = registry
        self._stores = stores
        self._disk = stores.hot_disk
        self._config = config
        self._clock = clock
        self._lock = threading.Lock()
        self._by_id: dict[str, Upload] = {}
        remove_tree(self._disk, paths.UPLOADS_DIR)

    def __len__(self) -> int:
        return len(self._by_id)

    def begin(self, name: str, changes: Mapping[str, Any], *, owner: str = "") -> UploadState:
        """Make a directory in which the segments of a new topic are gathered."""
        check_topic_name(name)
        config = TopicConfig.from_changes(changes)
        if config.type != "log" or not config.persists:
            raise RequestError("only a log that outlives a restart can be loaded in bulk")
        self._registry.check_free(name, config)
        if len(self._by_id) >= MAX_UPLOADS:
            raise LimitReached("max_uploads", MAX_UPLOADS)
        upload = Upload(
            name,
            config,
            topic_id=self._registry.reserve_id(),
            owner=owner,
            expires_s=self._clock.monotonic_s() + UPLOAD_MS / 1000,
        )
        self._disk.make_dir(upload.directory)
        with self._lock:
            self._by_id[upload.id] = upload
        return UploadState(
            upload=upload.id,
            topic=name,
            topic_id=upload.topic_id,
            directory=self._disk.location(upload.directory),
            expires_in_ms=UPLOAD_MS,
        )

    def attach(self, upload_id: str, segments: Sequence[BuiltSegment], *, owner: str = "") -> Topic:
        """Let the topic begin with all its segments; what is refused can be mended and sent again.

        Reads every byte: not for the event loop.
        """
        upload = self._take(upload_id, owner)
        try:
            self._check(upload, segments)
            self._claim(upload, segments)
            self._judge(upload, segments)
            topic = self._registry.attach(
                upload.topic_id,
                upload.name,
                config=upload.config,
                build=lambda: self._build(upload, segments),
            )
        except (RequestError, LimitReached, TooManyFiles):
            self._give_back(upload, segments)
            with self._lock:
                self._by_id[upload.id] = upload
            raise
        except DiskFull:
            # Not to be tried again: a sync may have failed. But what it has would fill the disk.
            if self._registry.takes_writes(upload.topic_id):
                with suppress(StorageError):
                    remove_tree(self._disk, upload.directory)
                    self._stores.remove_topic(upload.topic_id)
            raise
        remove_tree(self._disk, upload.directory)
        return topic

    def abandon(self, upload_id: str, *, owner: str = "") -> None:
        remove_tree(self._disk, self._take(upload_id, owner).directory)

    def sweep(self) -> None:
        """Remove what nobody has attached for a day."""
        now_s = self._clock.monotonic_s()
        with self._lock:
            old = [upload for upload in self._by_id.values() if upload.expires_s <= now_s]
            for upload in old:
                del self._by_id[upload.id]
        for upload in old:
            remove_tree(self._disk, upload.directory)

    def _take(self, upload_id: str, owner: str) -> Upload:
        """Take an upload out of the table: nobody else attaches or removes it meanwhile."""
        with self._lock:
            upload = self._by_id.get(upload_id)
            if upload is None or upload.owner != owner:
                raise UploadNotFound
            del self._by_id[upload_id]
        return upload

    def _check(self, upload: Upload, segments: Sequence[BuiltSegment]) -> None:
        if not segments:
            raise RequestError("an upload without segments is no topic: create one instead")
        check_order(segments)
        self._registry.check_free(upload.name, upload.config)
        if self._config.max_total_bytes:
            self._registry.budget.take(sum(segment.bytes for segment in segments))

    def _claim(self, upload: Upload, segments: Sequence[BuiltSegment]) -> None:
        """Move the files to where only the engine writes."""
        directory = paths.topic_dir(upload.topic_id)
        self._disk.make_dir(directory)
        for name in _names(segments):
            try:
                self._disk.rename(f"{upload.directory}/{name}", f"{directory}/{name}")
            except FileMissing:
                raise RequestError(f"{upload.directory}/{name} is not there") from None

    def _give_back(self, upload: Upload, segments: Sequence[BuiltSegment]) -> None:
        """Let what was refused be mended: whatever was moved goes back."""
        directory = paths.topic_dir(upload.topic_id)
        for name in _names(segments):
            if self._disk.exists(f"{directory}/{name}"):
                self._disk.rename(f"{directory}/{name}", f"{upload.directory}/{name}")
        self._disk.remove_dir(directory)

    def _judge(self, upload: Upload, segments: Sequence[BuiltSegment]) -> None:
        directory = paths.topic_dir(upload.topic_id)
        check_times(
            [
                check_segment(
                    self._disk, directory, segment, topic_id=upload.topic_id, limits=self._config
                )
                for segment in segments
            ]
        )
        for name in _names(segments):
            file = self._disk.open(f"{directory}/{name}")
            file.sync_data()
            file.close()
        self._disk.sync_dir(directory)

    def _build(self, upload: Upload, segments: Sequence[BuiltSegment]) -> Topic:
        """Return the topic that judged and synced files make."""
        topic = Topic(
            upload.topic_id,
            upload.name,
            config=upload.config,
            created_ts=self._clock.now_ms(),
            tags=TagRuns(self._disk, self._stores.maps, upload.topic_id),
        )
        for built in segments:
            segment = self._stores.new_segment(topic.id, built.first_seq, durable=True)
            segment.load()
            segment.release()
            topic.runs.append(segment)
            topic.last_ts = segment.last_ts
            if segment.tagged_records:
                topic.tag_pending.append(segment)
        topic.head_seq = topic.absorbed_seq = segments[-1].last_seq
        topic.next_seq = topic.head_seq + 1
        topic.recount()
        topic.settle_earliest(1)
        return topic


def _names(segments: Sequence[BuiltSegment]) -> Iterator[str]:
    for segment in segments:
        yield paths.segment_data_name(segment.first_seq)
        yield paths.segment_idx_name(segment.first_seq)
