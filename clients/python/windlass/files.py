"""Files of tasks: what is uploaded before a submission, and the archives in which outputs come back. Nothing is sent
here."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import stat
import tarfile
import tempfile
from dataclasses import dataclass, field
from typing import IO, Any, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

from .calls import Call, post, upload, upload_file

BLOBS_ASKED_MAX = 10_000
"""Most blobs that one request asks about."""
BATCHED_BYTES_MAX = 1 << 20
"""Most bytes of a blob that is uploaded together with others."""
BATCH_BYTES_MAX = 4 << 20
"""Most bytes of the blobs of one request."""
PIECE_BYTES = 1 << 20
"""Bytes of a file that are read at a time."""

AnyPath = Union[str, "os.PathLike[str]"]
Inputs = Union[AnyPath, Iterable[AnyPath], Mapping[AnyPath, str]]
"""Files and directories that tasks find: their paths, or their paths with the names that they have there."""


@dataclass
class Tree:
    """Files and directories by their content, as the Remote Execution API names them."""

    root: str = ""
    """The digest of the top directory's message: its SHA-256 and its length, with a slash between them."""
    blobs: Dict[str, Union[bytes, str]] = field(default_factory=dict)
    """The messages, and the paths of files, by digest."""


def tree_of(inputs: Inputs) -> Tree:
    """Reads the inputs. Of a directory all is taken but what git keeps for itself."""
    tree = Tree()
    top: Dict[str, Any] = {}
    for path, name in _named(inputs):
        # An input that is a link means what it leads to.
        _add(tree, top, [part for part in name.split("/") if part not in ("", ".")], os.path.realpath(path))
    tree.root = _put(tree, top)
    return tree


def _named(inputs: Inputs) -> Iterator[Tuple[str, str]]:
    """Each input with its name: the path itself if it leads down from the current directory, else its last part."""
    if isinstance(inputs, (str, os.PathLike)):
        inputs = [inputs]
    given = inputs.items() if isinstance(inputs, Mapping) else ((path, None) for path in inputs)
    for path, name in given:
        text = os.path.normpath(os.fspath(path))
        is_below = not os.path.isabs(text) and text.split(os.sep)[0] != ".."
        name = name if name is not None else text if is_below else os.path.basename(text)
        if name.startswith("/") or ".." in name.split("/"):
            raise ValueError(f"{name!r} leads out of the directory of the task")
        yield text, name.replace(os.sep, "/")


def _add(tree: Tree, top: Dict[str, Any], names: Sequence[str], path: str) -> None:
    """Adds a path to a directory, under one name after the other. A directory is a mapping of names; other nodes are
    the number of a field of its message, and the field."""
    mode = os.lstat(path).st_mode
    if stat.S_ISDIR(mode):
        for name in names:
            top = _directory(top, name)
        for entry in os.listdir(path):
            if entry != ".git":
                _add(tree, top, [entry], os.path.join(path, entry))
        return
    if not names:
        raise ValueError(f"{path!r} is a file: give it a name, as in {{{path!r}: 'name'}}")
    for name in names[:-1]:
        top = _directory(top, name)
    own = _text(1, names[-1].encode())
    if stat.S_ISLNK(mode):
        node = (3, own + _text(2, os.fsencode(os.readlink(path))))
    elif stat.S_ISREG(mode):
        digest = _digest_of(path)
        tree.blobs.setdefault(digest, path)
        node = (1, own + _text(2, _digest(digest)) + (b"\x20\x01" if mode & 0o111 else b""))
    else:
        raise ValueError(f"{path!r} is neither a file nor a directory")
    if top.setdefault(names[-1], node) != node:
        raise ValueError(f"two inputs are named {names[-1]!r}")


def _directory(top: Dict[str, Any], name: str) -> Dict[str, Any]:
    below: Any = top.setdefault(name, {})
    if not isinstance(below, dict):
        raise ValueError(f"{name!r} is a file and a directory")
    return below


def _put(tree: Tree, directory: Dict[str, Any]) -> str:
    """Adds the message of a directory, and those of what is in it."""
    nodes: List[Tuple[int, bytes]] = []
    # In canonical form names are in the order of their bytes, files before directories, and these before links.
    for name in sorted(directory, key=str.encode):
        node = directory[name]
        if isinstance(node, dict):
            node = (2, _text(1, name.encode()) + _text(2, _digest(_put(tree, node))))
        nodes.append(node)
    message = b"".join(_text(number, node) for number, node in sorted(nodes, key=lambda node: node[0]))
    digest = f"{hashlib.sha256(message).hexdigest()}/{len(message)}"
    tree.blobs[digest] = message
    return digest


def _text(number: int, body: bytes) -> bytes:
    """A field of a protobuf message whose length comes before it."""
    return bytes([number << 3 | 2]) + _varint(len(body)) + body


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(out) + bytes([number])


def _digest(digest: str) -> bytes:
    hash_text, _, length = digest.partition("/")
    size = int(length)
    return _text(1, hash_text.encode()) + (b"\x10" + _varint(size) if size else b"")


def _digest_of(path: str) -> str:
    hasher, size = hashlib.sha256(), 0
    with open(path, "rb") as file:
        for piece in iter(lambda: file.read(PIECE_BYTES), b""):
            hasher.update(piece)
            size += len(piece)
    return f"{hasher.hexdigest()}/{size}"


def questions(tree: Tree) -> Iterator[Call]:
    """The requests that ask which blobs are missing. Every server has the empty one."""
    asked = [digest for digest in tree.blobs if not digest.endswith("/0")]
    for start in range(0, len(asked), BLOBS_ASKED_MAX):
        body = {"blobs": asked[start : start + BLOBS_ASKED_MAX]}
        yield post("/api/v1/files/missing", "ask which files are to be uploaded", body)


def uploads(tree: Tree, missing: Iterable[str]) -> Iterator[Call]:
    """The requests that upload them: large ones each by itself, small ones together."""
    batch: List[bytes] = []
    size = 0
    for digest in missing:
        source = tree.blobs[digest]
        length = int(digest.partition("/")[2])
        if length > BATCHED_BYTES_MAX and isinstance(source, str):
            yield upload_file(digest, source, length)
            continue
        if isinstance(source, str):
            with open(source, "rb") as file:
                source = file.read()
        if length > BATCHED_BYTES_MAX:
            yield upload(f"blobs/{digest}", source, "PUT")
            continue
        if size + length > BATCH_BYTES_MAX:
            yield upload("blobs", b"".join(batch), "POST")
            batch, size = [], 0
        batch += [digest.replace("/", " ").encode() + b"\n", source]
        size += length
    if batch:
        yield upload("blobs", b"".join(batch), "POST")


def unpack(archive: IO[bytes], into: str, force: bool) -> List[str]:
    """Writes an archive of outputs to a directory, and returns what stood in the way and was left as it is.

    Nothing is written outside of the directory or through a link. A file with the same content is not written again.
    """
    os.makedirs(into, exist_ok=True)
    kept: List[str] = []
    aside = tempfile.TemporaryDirectory(prefix=".windlass-part.", dir=into)
    with aside as parts, tarfile.open(fileobj=archive, mode="r|") as members:
        for member in members:
            names = member.name.rstrip("/").split("/")
            if {"", ".", ".."} & set(names) or (os.sep != "/" and os.sep in member.name):
                raise ValueError(f"the archive has the name {member.name!r}, which leads elsewhere")
            above = names if member.isdir() else names[:-1]
            blocked = _make_directories(into, above)
            if blocked is None and not member.isdir():
                part = os.path.join(parts, "part")
                blocked = _write(members, member, part, os.path.join(into, *names), force)
            if blocked is not None and blocked not in kept:
                kept.append(blocked)
    return kept


def _make_directories(into: str, names: Sequence[str]) -> Optional[str]:
    path = into
    for name in names:
        path = os.path.join(path, name)
        if not os.path.lexists(path):
            os.mkdir(path)
        elif os.path.islink(path) or not os.path.isdir(path):
            return path
    return None


def _write(
    members: tarfile.TarFile, member: tarfile.TarInfo, part: str, path: str, force: bool
) -> Optional[str]:
    """Writes a file or a link, first as `part`; returns the path if something else stands there."""
    is_there = os.path.lexists(path)
    if is_there and os.path.isdir(path) and not os.path.islink(path):
        return path
    if member.issym():
        target = member.linkname.split("/")
        up = target.count("..")
        if member.linkname.startswith("/") or up > member.name.count("/") or target[:up] != [".."] * up:
            raise ValueError(f"the archive has the link {member.name!r}, which leads elsewhere")
        os.symlink(member.linkname, part)
        is_same = is_there and os.path.islink(path) and os.readlink(path) == member.linkname
    elif member.isfile():
        source = members.extractfile(member)
        assert source is not None
        with open(part, "xb") as file:
            shutil.copyfileobj(source, file, PIECE_BYTES)
        if member.mode & 0o111:
            mode = stat.S_IMODE(os.stat(part).st_mode)
            os.chmod(part, mode | (mode & 0o444) >> 2)
        is_same = is_there and os.path.isfile(path) and not os.path.islink(path) and _are_same(path, part)
    else:
        raise ValueError(f"the archive has {member.name!r}, which is neither a file nor a directory nor a link")
    if is_same or (is_there and not force):
        os.remove(part)
        return None if is_same else path
    os.replace(part, path)
    return None


def _are_same(one: str, other: str) -> bool:
    with open(one, "rb") as first, open(other, "rb") as second:
        while True:
            piece = first.read(PIECE_BYTES)
            if piece != second.read(PIECE_BYTES):
                return False
            if not piece:
                return True


def in_the_way(kept: Sequence[str]) -> FileExistsError:
    """The error for outputs that were not written."""
    return FileExistsError(errno.EEXIST, "something else is there and was left as it is; see force", ", ".join(kept))


def directory_of(step: str, index: int) -> str:
    """The directory of a task's outputs beside those of others."""
    plain = "".join("_" if ord(char) < 32 or char in "/\\\x7f" else char for char in step[:60])
    return f"{'_' + plain[1:] if plain.startswith('.') else plain}.{index}"


EMPTY = f"{hashlib.sha256().hexdigest()}/0"
"""The tree without files, of a task of which nothing was kept."""
