//! Names, links and the order of paths in trees.

use std::collections::BTreeMap;

use proptest::prelude::*;
use windlass_cas::tree::{
    DEPTH_MAX, LINK_BYTES_MAX, LinkFault, NAME_BYTES_MAX, NameFault, PATH_BYTES_MAX, check_link, check_path,
    folded, tree_order,
};

#[test]
fn paths_that_could_leave_a_directory_are_refused() {
    let long = "n".repeat(NAME_BYTES_MAX + 1);
    let long_path = ["n".repeat(200).as_str()].repeat(PATH_BYTES_MAX / 200 + 1).join("/");
    let deep = ["a"; DEPTH_MAX + 1].join("/");
    let cases = [
        ("", NameFault::Empty),
        ("/", NameFault::Absolute),
        ("/etc/passwd", NameFault::Absolute),
        ("a//b", NameFault::Empty),
        ("a/", NameFault::Empty),
        (".", NameFault::Dots),
        ("..", NameFault::Dots),
        ("a/../b", NameFault::Dots),
        ("a/..", NameFault::Dots),
        ("a\0b", NameFault::Nul),
        (long.as_str(), NameFault::Long),
        (long_path.as_str(), NameFault::PathLong),
        (deep.as_str(), NameFault::Deep),
    ];
    for (path, fault) in cases {
        assert_eq!(check_path(path), Err(fault), "{path:?}");
    }
    let deepest = ["a"; DEPTH_MAX].join("/");
    for path in ["a", "...", "..a", "a/b.c", "-x", " ", "a\\b", "ü", deepest.as_str()] {
        assert_eq!(check_path(path), Ok(()), "{path:?}");
    }
}

#[test]
fn links_may_lead_to_the_root_and_no_further() {
    let long = "n".repeat(LINK_BYTES_MAX + 1);
    let cases = [
        (0, "", Err(LinkFault::Empty)),
        (0, "/etc", Err(LinkFault::Absolute)),
        (0, "a\0", Err(LinkFault::Nul)),
        (0, long.as_str(), Err(LinkFault::Long)),
        (0, "..", Err(LinkFault::Outside)),
        (1, "..", Ok(())),
        (1, "../x", Ok(())),
        (1, "./.././x/", Ok(())),
        (1, "../../x", Err(LinkFault::Outside)),
        (2, "../../x", Ok(())),
        (9, "a/../b", Err(LinkFault::DotsAfterName)),
        (9, "../a/..", Err(LinkFault::DotsAfterName)),
        (0, "a/b", Ok(())),
        (0, ".", Ok(())),
    ];
    for (depth, target, expected) in cases {
        assert_eq!(check_link(depth, target), expected, "{target:?} in {depth}");
    }
}

/// Links that are followed on one way, as many as Linux follows.
const HOPS_MAX: usize = 40;

/// Where a path leads from a directory, as the kernel finds it. An error: above the root.
fn resolve(
    links: &BTreeMap<String, String>,
    mut at: Vec<String>,
    path: &str,
    hops: &mut usize,
) -> Result<Vec<String>, String> {
    for name in path.split('/') {
        match name {
            "" | "." => {}
            ".." => {
                at.pop().ok_or_else(|| path.to_owned())?;
            }
            name => {
                let mut full = at.clone();
                full.push(name.to_owned());
                match links.get(&full.join("/")) {
                    Some(target) if *hops < HOPS_MAX => {
                        *hops += 1;
                        at = resolve(links, at, target, hops)?;
                    }
                    _ => at = full,
                }
            }
        }
    }
    Ok(at)
}

proptest! {
    /// A directory of links may lead anywhere in the tree and through each other, and still not outside.
    #[test]
    fn no_way_through_allowed_links_leaves_the_tree(
        links in prop::collection::btree_map("[ab](/[ab]){0,3}", "(\\.\\./){0,4}[ab.]?(/[ab.]){0,3}(/\\.\\.)?", 1..12)
    ) {
        // Directories are real: nothing stands below a link.
        let below_a_link = |path: &str| {
            path.match_indices('/').any(|(at, _)| links.contains_key(&path[..at]))
        };
        let is_allowed = |path: &str, target: &str| {
            check_link(path.split('/').count() - 1, target).is_ok() && !below_a_link(path)
        };
        let allowed: BTreeMap<String, String> = links
            .iter()
            .filter(|(path, target)| is_allowed(path, target))
            .map(|(path, target)| (path.clone(), target.clone()))
            .collect();
        for path in allowed.keys() {
            let found = resolve(&allowed, Vec::new(), path, &mut 0);
            prop_assert!(found.is_ok(), "{path} leaves the tree by {found:?}: {allowed:?}");
        }
    }

    #[test]
    fn the_order_of_paths_is_that_of_their_names(
        a in "[a\u{1} .é-]{1,3}(/[a\u{1} .é-]{1,3}){0,3}",
        b in "[a\u{1} .é-]{1,3}(/[a\u{1} .é-]{1,3}){0,3}",
    ) {
        prop_assert_eq!(tree_order(&a, &b), a.split('/').cmp(b.split('/')));
    }

    #[test]
    fn what_is_folded_stays_as_it_is(name in "\\PC{0,12}") {
        let once = folded(&name);
        prop_assert_eq!(folded(&once), once);
    }

    #[test]
    fn any_text_is_a_path_or_refused(text in ".{0,40}") {
        if check_path(&text).is_ok() {
            prop_assert!(text.split('/').all(|name| !name.is_empty() && name != "." && name != ".."));
        }
    }
}

#[test]
fn names_that_file_systems_confuse_are_folded_to_one() {
    for (a, b) in [("Makefile", "makefile"), ("é", "e\u{301}"), ("É/x", "e\u{301}/X"), ("\u{212a}", "k")] {
        assert_eq!(folded(a), folded(b), "{a} {b}");
    }
    for (a, b) in [("a", "b"), ("e", "é"), ("a/b", "a_b")] {
        assert_ne!(folded(a), folded(b), "{a} {b}");
    }
}
