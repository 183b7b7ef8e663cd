//! Trees as messages: those that are made, and those that someone made who means harm.

use std::collections::{BTreeMap, HashMap};

use proptest::prelude::*;
use prost::Message as _;
use windlass_cas::Digest;
use windlass_cas::proto::re;
use windlass_cas::tree::{
    DEPTH_MAX, DIRECTORY_BYTES_MAX, ENTRIES_MAX, EncodedTree, EntryKind, LinkFault, MessageFault, NameFault,
    TreeBounds, TreeContent, TreeEntry, TreeError, TreeReader, check_directory, encode, read_tree,
    read_tree_message, tree_message,
};

fn file(path: &str, content: &[u8], is_executable: bool) -> TreeEntry {
    let kind = EntryKind::File { digest: Digest::of(content), is_executable };
    TreeEntry { path: path.to_owned(), kind }
}

fn link(path: &str, target: &str) -> TreeEntry {
    TreeEntry { path: path.to_owned(), kind: EntryKind::Link { target: target.to_owned() } }
}

fn directory(path: &str) -> TreeEntry {
    TreeEntry { path: path.to_owned(), kind: EntryKind::Directory }
}

fn wire(digest: Digest) -> Option<re::Digest> {
    Some(re::Digest { hash: digest.hex(), size_bytes: digest.size as i64 })
}

fn file_node(name: &str) -> re::FileNode {
    re::FileNode { name: name.to_owned(), digest: wire(Digest::of(b"x")), ..re::FileNode::default() }
}

fn directory_node(name: &str, digest: Digest) -> re::DirectoryNode {
    re::DirectoryNode { name: name.to_owned(), digest: wire(digest) }
}

fn link_node(name: &str, target: &str) -> re::SymlinkNode {
    re::SymlinkNode { name: name.to_owned(), target: target.to_owned(), ..re::SymlinkNode::default() }
}

/// A store of messages.
#[derive(Default)]
struct Messages(HashMap<Digest, Vec<u8>>);

impl Messages {
    fn put(&mut self, directory: &re::Directory) -> Digest {
        let bytes = directory.encode_to_vec();
        let digest = Digest::of(&bytes);
        self.0.insert(digest, bytes);
        digest
    }

    /// A directory that has only others, by their names.
    fn put_directories(&mut self, below: &[(&str, Digest)]) -> Digest {
        let directories = below.iter().map(|(name, digest)| directory_node(name, *digest)).collect();
        self.put(&re::Directory { directories, ..re::Directory::default() })
    }

    fn read(&self, root: Digest) -> Result<TreeContent, TreeError> {
        self.read_within(root, TreeBounds::default())
    }

    fn read_within(&self, root: Digest, bounds: TreeBounds) -> Result<TreeContent, TreeError> {
        read_tree(root, bounds, &mut |digest| Ok(self.0.get(&digest).cloned()))
    }
}

fn read_encoded(tree: &EncodedTree) -> TreeContent {
    Messages(tree.messages.iter().cloned().collect()).read(tree.root).unwrap()
}

/// Random entries that can stand in one tree. Directories on the way are entries, too.
fn trees() -> impl Strategy<Value = Vec<TreeEntry>> {
    let kind = prop_oneof![
        (any::<u8>(), any::<bool>()).prop_map(|(content, is_executable)| EntryKind::File {
            digest: Digest::of(&[content]),
            is_executable
        }),
        "[a-c]".prop_map(|target| EntryKind::Link { target }),
        Just(EntryKind::Directory),
    ];
    prop::collection::vec(("[abA.-]{1,2}x(/[abA.-]{1,2}x){0,3}", kind), 0..30).prop_map(|found| {
        let mut entries: BTreeMap<String, EntryKind> = BTreeMap::new();
        for (path, kind) in found {
            let parents: Vec<String> = path.match_indices('/').map(|(at, _)| path[..at].to_owned()).collect();
            let is_free = |path: &String| entries.get(path).is_none_or(|kind| *kind == EntryKind::Directory);
            if parents.iter().all(is_free) && !entries.contains_key(&path) {
                entries.extend(parents.into_iter().map(|parent| (parent, EntryKind::Directory)));
                entries.insert(path, kind);
            }
        }
        entries.into_iter().map(|(path, kind)| TreeEntry { path, kind }).collect()
    })
}

#[test]
fn a_tree_is_encoded_in_canonical_form() {
    let tree = encode(vec![
        file("b/run", b"x", true),
        file("a", b"x", false),
        link("b/l", "../a"),
        directory("c"),
        file("b.x", b"", false),
    ])
    .unwrap();
    let mut messages = Messages::default();
    let b = messages.put(&re::Directory {
        files: vec![re::FileNode { is_executable: true, ..file_node("run") }],
        symlinks: vec![link_node("l", "../a")],
        ..re::Directory::default()
    });
    let root = messages.put(&re::Directory {
        files: vec![file_node("a"), re::FileNode { digest: wire(Digest::EMPTY), ..file_node("b.x") }],
        directories: vec![directory_node("b", b), directory_node("c", Digest::EMPTY)],
        ..re::Directory::default()
    });
    messages.put(&re::Directory::default());
    assert_eq!(tree.root, root);
    assert_eq!(tree.messages[0].0, root);
    assert_eq!(tree.messages.into_iter().collect::<HashMap<_, _>>(), messages.0);
    assert_eq!(encode(Vec::new()).unwrap().root, Digest::EMPTY);
}

#[test]
fn a_directory_that_is_in_two_places_is_one_message() {
    let tree = encode(vec![file("a/x/f", b"1", false), file("b/x/f", b"1", false), file("x/f", b"1", false)]);
    let tree = tree.unwrap();
    // The root, `a` and `b` as one, and the three `x` as one, each before what is in it.
    assert_eq!(tree.messages.len(), 3);
    let content = read_encoded(&tree);
    assert_eq!((content.totals().files, content.totals().directories), (3, 5));
    let position = |digest: Digest| tree.messages.iter().position(|(is, _)| *is == digest).unwrap();
    for (digest, _) in &tree.messages {
        for (_, below) in &content.directory(*digest).unwrap().directories {
            assert!(position(*digest) < position(*below));
        }
    }
}

#[test]
fn entries_that_cannot_stand_in_one_tree_are_refused() {
    let twice = [
        vec![file("a", b"1", false), file("a", b"1", false)],
        vec![file("a", b"1", false), directory("a")],
        vec![directory("a"), file("a", b"1", false)],
        vec![file("a", b"1", false), file("a/b", b"1", false)],
        vec![file("a/b", b"1", false), link("a", "b")],
        vec![directory("a"), file("a", b"1", false), file("a/b", b"1", false)],
    ];
    for entries in twice {
        assert!(matches!(encode(entries.clone()), Err(TreeError::Twice(_))), "{entries:?}");
    }
    for path in ["", "/a", "a/../b", "a//b", "a\0"] {
        assert!(matches!(encode(vec![file(path, b"", false)]), Err(TreeError::Name { .. })), "{path:?}");
    }
    for target in ["/etc", "../x", "a/../../x"] {
        assert!(matches!(encode(vec![link("a", target)]), Err(TreeError::Link { .. })), "{target}");
    }
    assert!(encode(vec![directory("a"), directory("a"), directory("a/b"), directory("a")]).is_ok());
}

#[test]
fn a_damaged_directory_is_refused_with_its_reason() {
    let of = |files: &[&str]| re::Directory {
        files: files.iter().map(|name| file_node(name)).collect(),
        ..re::Directory::default()
    };
    let bad_digest = |hash: String, size_bytes: i64| re::Directory {
        files: vec![re::FileNode { digest: Some(re::Digest { hash, size_bytes }), ..file_node("a") }],
        ..re::Directory::default()
    };
    let hex = Digest::of(b"x").hex();
    let links = |name: &str, target: &str| re::Directory {
        symlinks: vec![link_node(name, target)],
        ..re::Directory::default()
    };
    let both = |directory: re::Directory| re::Directory {
        directories: vec![directory_node("a", Digest::EMPTY)],
        ..directory
    };
    let cases = [
        (of(&["b", "a"]), "Order"),
        (of(&["a", "a"]), "Twice"),
        (both(of(&["a"])), "Twice"),
        (both(links("a", "b")), "Twice"),
        (of(&[""]), "Empty"),
        (of(&["."]), "Dots"),
        (of(&[".."]), "Dots"),
        (of(&["a/b"]), "Slash"),
        (of(&["/etc"]), "Slash"),
        (of(&["a\0"]), "Nul"),
        (of(&["a".repeat(256).as_str()]), "Long"),
        (links("..", "a"), "Dots"),
        (links("a", "/etc"), "Absolute"),
        (links("a", ""), "Empty"),
        (links("a", "b/../../c"), "DotsAfterName"),
        (links("a", &"../".repeat(DEPTH_MAX + 1)), "Outside"),
        (bad_digest(hex.to_uppercase(), 1), "Digest"),
        (bad_digest(hex[1..].to_owned(), 1), "Digest"),
        (bad_digest(String::new(), 0), "Digest"),
        (bad_digest(hex.clone(), -1), "Digest"),
        (
            both(re::Directory { files: vec![re::FileNode { digest: None, ..file_node("b") }], ..of(&[]) }),
            "Digest",
        ),
    ];
    for (directory, expected) in cases {
        let fault = check_directory(&directory.encode_to_vec()).unwrap_err();
        let is = format!("{fault:?}");
        assert!(is.contains(expected), "{is} is not {expected}: {directory:?}");
    }
    let not_messages: [&[u8]; 5] = [
        b"\x0a",
        b"\x0a\x05ab",
        b"\x08\x01",
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
        b"\x0a\x02\x0a\x05",
    ];
    for bytes in not_messages {
        assert!(matches!(check_directory(bytes), Err(MessageFault::Encoding)), "{bytes:?}");
    }
    let long = vec![0; DIRECTORY_BYTES_MAX as usize + 1];
    assert!(matches!(check_directory(&long), Err(MessageFault::Long { .. })));
    // Properties of nodes and fields of later versions are passed over.
    let mut later = of(&["a", "b"]).encode_to_vec();
    later.extend_from_slice(b"\x2a\x00\x7a\x01x");
    assert_eq!(check_directory(&later).unwrap().files.len(), 2);
}

#[test]
fn a_tree_of_few_messages_may_not_have_more_than_a_million_entries() {
    let mut messages = Messages::default();
    let mut at = messages.put(&re::Directory { files: vec![file_node("f")], ..re::Directory::default() });
    for _ in 0..DEPTH_MAX - 1 {
        at = messages.put_directories(&[("a", at), ("b", at)]);
    }
    assert!(matches!(messages.read(at), Err(TreeError::ManyEntries { max: ENTRIES_MAX })));
    // 2^18 directories with a file each are allowed, and cost no more to check.
    let mut at = messages.put(&re::Directory { files: vec![file_node("f")], ..re::Directory::default() });
    for _ in 0..18 {
        at = messages.put_directories(&[("a", at), ("b", at)]);
    }
    let content = messages.read(at).unwrap();
    assert_eq!(content.totals().files, 1 << 18);
    assert_eq!(content.totals().entries(), (1 << 18) + (1 << 19) - 2);
    assert_eq!(content.blobs().len(), 20);
}

#[test]
fn a_tree_keeps_to_its_bounds() {
    let mut messages = Messages::default();
    let three = encode(vec![file("a/b", b"12345", false), file("c", b"12345", false)]).unwrap();
    messages.0.extend(three.messages);
    let within =
        |entries_max, bytes_max| messages.read_within(three.root, TreeBounds { entries_max, bytes_max });
    assert!(within(3, 10).is_ok());
    assert!(matches!(within(2, 10), Err(TreeError::ManyEntries { max: 2 })));
    assert!(matches!(within(3, 9), Err(TreeError::ManyBytes { max: 9 })));
    let huge = |count: usize| {
        let digest = Some(re::Digest { hash: Digest::of(b"x").hex(), size_bytes: i64::MAX });
        let names = (0..count).map(|number| format!("{number}"));
        let files = names.map(|name| re::FileNode { digest: digest.clone(), ..file_node(&name) }).collect();
        re::Directory { files, ..re::Directory::default() }
    };
    let root = messages.put(&huge(3));
    assert!(matches!(messages.read(root), Err(TreeError::ManyBytes { .. })));
}

#[test]
fn depth_and_lengths_of_paths_are_bounded() {
    let mut messages = Messages::default();
    let chain = |messages: &mut Messages, name: &str, count: usize| {
        let start = re::Directory { files: vec![file_node("f")], ..re::Directory::default() };
        let mut at = messages.put(&start);
        for _ in 0..count {
            at = messages.put_directories(&[(name, at)]);
        }
        at
    };
    let deepest = chain(&mut messages, "d", DEPTH_MAX - 1);
    assert_eq!(messages.read(deepest).unwrap().entries().len(), DEPTH_MAX);
    let deeper = chain(&mut messages, "d", DEPTH_MAX);
    assert!(matches!(messages.read(deeper), Err(TreeError::Deep)));
    let far_deeper = chain(&mut messages, "d", 10 * DEPTH_MAX);
    assert!(matches!(messages.read(far_deeper), Err(TreeError::Deep)));
    let long = chain(&mut messages, &"n".repeat(250), 15);
    assert!(matches!(messages.read(long), Err(TreeError::Name { why: NameFault::PathLong, .. })));
    // Paths of up to 2,500 bytes, 32,768 times each, by 26 messages.
    let mut wide = chain(&mut messages, &"n".repeat(250), 10);
    for _ in 0..15 {
        wide = messages.put_directories(&[("a", wide), ("b", wide)]);
    }
    assert!(matches!(messages.read(wide), Err(TreeError::ManyNames { .. })));
}

#[test]
fn a_link_is_checked_at_each_place_of_its_directory() {
    let mut messages = Messages::default();
    let with_link = messages
        .put(&re::Directory { symlinks: vec![link_node("l", "../../x")], ..re::Directory::default() });
    let below = messages.put_directories(&[("deep", with_link)]);
    let good = messages.put_directories(&[("a", below)]);
    assert!(messages.read(good).is_ok());
    let bad = messages.put_directories(&[("a", below), ("b", with_link)]);
    let Err(TreeError::Link { name, why, .. }) = messages.read(bad) else { panic!("it was allowed") };
    assert_eq!((name.as_str(), why), ("b/l", LinkFault::Outside));
}

#[test]
fn messages_count_only_if_they_are_wanted() {
    let tree = encode(vec![file("a/b/c", b"1", false), file("a/d/e", b"2", false)]).unwrap();
    let by_digest: HashMap<Digest, Vec<u8>> = tree.messages.iter().cloned().collect();
    let mut reader = TreeReader::new(tree.root, TreeBounds::default()).unwrap();
    assert!(matches!(reader.add(b"x"), Err(TreeError::Unasked(_))));
    assert!(matches!(reader.add(&tree.messages[1].1), Err(TreeError::Unasked(_))));
    loop {
        let wanted: Vec<Digest> = reader.wanted().collect();
        if wanted.is_empty() {
            break;
        }
        for digest in wanted {
            reader.add(&by_digest[&digest]).unwrap();
            assert!(matches!(reader.add(&by_digest[&digest]), Err(TreeError::Unasked(_))));
        }
    }
    assert_eq!(reader.finish().unwrap().totals().files, 2);
    let unread = TreeReader::new(tree.root, TreeBounds::default()).unwrap();
    assert!(matches!(unread.finish(), Err(TreeError::Missing(digest)) if digest == tree.root));
    let too_long = Digest { hash: [0; 32], size: DIRECTORY_BYTES_MAX + 1 };
    assert!(matches!(
        TreeReader::new(too_long, TreeBounds::default()),
        Err(TreeError::Message { why: MessageFault::Long { .. }, .. })
    ));
}

#[test]
fn a_tree_message_has_one_root_and_all_directories() {
    let tree = encode(vec![file("a/b/c", b"1", false)]).unwrap();
    let bytes = tree_message(&tree);
    let as_prost = re::Tree::decode(bytes.as_slice()).unwrap();
    assert_eq!(as_prost.children.len(), 2);
    assert_eq!(as_prost.encode_to_vec(), bytes);
    assert_eq!(read_tree_message(&bytes, TreeBounds::default()).unwrap().root(), tree.root);
    // An empty directory is a root, too.
    let empty = tree_message(&encode(Vec::new()).unwrap());
    assert_eq!(empty, [0x0a, 0]);
    assert_eq!(read_tree_message(&empty, TreeBounds::default()).unwrap().root(), Digest::EMPTY);
    let refused = |bytes: &[u8]| read_tree_message(bytes, TreeBounds::default()).unwrap_err();
    assert!(matches!(refused(b""), TreeError::Tree(MessageFault::NoRoot)));
    assert!(matches!(refused(b"\x0a\x00\x0a\x00"), TreeError::Tree(MessageFault::Encoding)));
    assert!(matches!(refused(&bytes[..bytes.len() - 1]), TreeError::Tree(MessageFault::Encoding)));
    let without_children = re::Tree { children: Vec::new(), ..as_prost };
    assert!(matches!(refused(&without_children.encode_to_vec()), TreeError::Missing(_)));
}

proptest! {
    #[test]
    fn what_is_encoded_is_read_again(entries in trees(), seed in any::<prop::sample::Index>()) {
        let tree = encode(entries.clone()).unwrap();
        let content = read_encoded(&tree);
        let mut expected = entries.clone();
        expected.sort_by(|a, b| windlass_cas::tree::tree_order(&a.path, &b.path));
        prop_assert_eq!(content.entries(), expected);
        prop_assert_eq!(content.totals().entries(), entries.len() as u64);
        // The order of entries does not matter, nor whether directories on the way are named.
        let mut turned = entries;
        let by = if turned.is_empty() { 0 } else { seed.index(turned.len()) };
        turned.rotate_left(by);
        prop_assert_eq!(&encode(turned.clone()).unwrap(), &tree);
        let is_empty = |path: &str| {
            let prefix = format!("{path}/");
            turned.iter().all(|other| !other.path.starts_with(&prefix))
        };
        let is_needed = |entry: &&TreeEntry| entry.kind != EntryKind::Directory || is_empty(&entry.path);
        let needed = turned.iter().filter(is_needed).cloned().collect();
        prop_assert_eq!(&encode(needed).unwrap(), &tree);
        let message = tree_message(&tree);
        let from_message = read_tree_message(&message, TreeBounds::default()).unwrap();
        prop_assert_eq!(from_message.entries(), content.entries());
    }

    #[test]
    fn any_bytes_are_a_directory_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = check_directory(&bytes);
        let _ = read_tree_message(&bytes, TreeBounds::default());
    }

    /// What is read of a damaged message keeps to the rules.
    #[test]
    fn a_message_with_a_changed_byte_is_no_danger(
        entries in trees(), at in any::<prop::sample::Index>(), byte in any::<u8>()
    ) {
        let mut bytes = tree_message(&encode(entries).unwrap());
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Ok(content) = read_tree_message(&bytes, TreeBounds::default()) {
            prop_assert!(encode(content.entries()).is_ok());
        }
    }
}
